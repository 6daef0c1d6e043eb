#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds input.txt <<'END' || exit 1
rabbit
copper
eagle
river
forest
velvet
END
holds copy.txt <<'END' || exit 1
velvet
river
rabbit
forest
eagle
copper
END
