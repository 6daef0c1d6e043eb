#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds plan.txt <<'END' || exit 1
marble maple
river saddle rabbit
lemon garden jungle
copper stone
temple ginger
forest eagle falcon
END
number names.txt 15 || exit 1
