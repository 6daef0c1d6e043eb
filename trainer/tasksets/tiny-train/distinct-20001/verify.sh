#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds input.txt <<'END' || exit 1
ocean
temple
rabbit
cloud
ocean
temple
END
holds prices.txt <<'END' || exit 1
cloud
ocean
rabbit
temple
END
