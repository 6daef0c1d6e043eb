#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds values.txt <<'END' || exit 1
jungle orange hammer
river copper
temple ocean tiger
garden falcon
silver eagle
dragon velvet kettle
END
number copy.txt 6 || exit 1
