#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds history.txt <<'END' || exit 1
ocean
tiger candle
marble
eagle
tiger cloud
END
holds copy.txt <<'END' || exit 1
tiger candle
tiger cloud
END
