#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds names.txt <<'END' || exit 1
jungle river ocean
pepper marble
island falcon maple
stone cloud hammer
paper forest
END
number report.txt 13 || exit 1
