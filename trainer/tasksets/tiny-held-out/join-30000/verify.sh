#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds main.txt <<'END' || exit 1
falcon
saddle
END
holds notes.txt <<'END' || exit 1
eagle
forest
END
holds orders.txt <<'END' || exit 1
falcon
saddle
eagle
forest
END
