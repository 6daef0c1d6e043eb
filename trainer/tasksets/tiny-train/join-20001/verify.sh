#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds plan.txt <<'END' || exit 1
tiger
ocean
END
holds prices.txt <<'END' || exit 1
stone
paper
END
holds items.txt <<'END' || exit 1
tiger
ocean
stone
paper
END
