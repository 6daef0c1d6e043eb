#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds output.txt <<'END' || exit 1
kettle
stone
END
holds orders.txt <<'END' || exit 1
saddle
copper
END
holds result.txt <<'END' || exit 1
kettle
stone
saddle
copper
END
