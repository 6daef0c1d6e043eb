#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds main.txt <<'END' || exit 1
bridge kettle cloud
saddle marble river
silver dragon ocean
orange temple
END
number log.txt 4 || exit 1
