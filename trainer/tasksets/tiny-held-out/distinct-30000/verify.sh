#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds data.txt <<'END' || exit 1
tiger
hammer
candle
jungle
tiger
hammer
END
holds copy.txt <<'END' || exit 1
candle
hammer
jungle
tiger
END
