#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds plan.txt <<'END' || exit 1
lemon river
marble ginger
maple temple silver
saddle tiger eagle
kettle stone
copper dragon
END
number total.txt 14 || exit 1
