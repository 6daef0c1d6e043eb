#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds result.txt <<'END' || exit 1
paper
stone
island
kettle
silver
eagle
river
apple
candle
END
holds notes.txt <<'END' || exit 1
eagle
river
apple
candle
END
