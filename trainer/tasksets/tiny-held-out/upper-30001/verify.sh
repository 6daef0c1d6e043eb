#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds result.txt <<'END' || exit 1
jungle
tiger
orange
END
holds log.txt <<'END' || exit 1
JUNGLE
TIGER
ORANGE
END
