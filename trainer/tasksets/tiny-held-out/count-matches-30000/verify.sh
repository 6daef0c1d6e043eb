#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds copy.txt <<'END' || exit 1
falcon marble
falcon kettle
falcon ginger
falcon garden
velvet
END
number users.txt 4 || exit 1
