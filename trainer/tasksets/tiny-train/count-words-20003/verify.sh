#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds numbers.txt <<'END' || exit 1
falcon maple
jungle bridge pepper
ginger forest
copper ocean
saddle dragon
END
number history.txt 11 || exit 1
