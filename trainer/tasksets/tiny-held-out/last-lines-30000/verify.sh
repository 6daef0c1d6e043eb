#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds result.txt <<'END' || exit 1
copper
kettle
stone
hammer
eagle
rabbit
orange
END
holds memo.txt <<'END' || exit 1
hammer
eagle
rabbit
orange
END
