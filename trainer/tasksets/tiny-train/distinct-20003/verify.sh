#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds numbers.txt <<'END' || exit 1
saddle
apple
marble
stone
saddle
apple
END
holds list.txt <<'END' || exit 1
apple
marble
saddle
stone
END
