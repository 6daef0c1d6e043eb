#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds input.txt <<'END' || exit 1
island temple
paper bridge copper
saddle apple garden
dragon candle
ginger kettle
maple falcon ocean
END
number history.txt 6 || exit 1
