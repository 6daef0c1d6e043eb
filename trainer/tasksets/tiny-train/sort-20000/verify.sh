#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds orders.txt <<'END' || exit 1
silver
island
lemon
pepper
marble
END
holds list.txt <<'END' || exit 1
island
lemon
marble
pepper
silver
END
