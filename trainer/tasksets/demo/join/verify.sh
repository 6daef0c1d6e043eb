#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds result.txt <<'END' || exit 1
cloud
orange
END
holds orders.txt <<'END' || exit 1
saddle
candle
END
holds plan.txt <<'END' || exit 1
cloud
orange
saddle
candle
END
