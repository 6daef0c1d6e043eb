#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds letter.txt <<'END' || exit 1
marble
eagle
velvet
END
holds items.txt <<'END' || exit 1
MARBLE
EAGLE
VELVET
END
