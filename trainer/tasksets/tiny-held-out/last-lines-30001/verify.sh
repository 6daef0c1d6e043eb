#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds plan.txt <<'END' || exit 1
saddle
jungle
orange
ocean
lemon
kettle
temple
tiger
garden
END
holds list.txt <<'END' || exit 1
tiger
garden
END
