#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
absent() { [ ! -e "$1" ] && [ ! -L "$1" ]; }

absent output.txt || exit 1
holds copy.txt <<'END' || exit 1
lemon
stone
END
