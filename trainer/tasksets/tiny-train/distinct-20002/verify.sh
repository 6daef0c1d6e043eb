#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds history.txt <<'END' || exit 1
stone
orange
eagle
saddle
stone
orange
END
holds plan.txt <<'END' || exit 1
eagle
orange
saddle
stone
END
