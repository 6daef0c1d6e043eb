#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds data.txt <<'END' || exit 1
temple silver
dragon falcon
pepper orange
lemon candle river
velvet island tiger
END
number output.txt 5 || exit 1
