#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds memo.txt <<'END' || exit 1
silver
apple
island
ocean
pepper
marble
hammer
stone
dragon
END
holds total.txt <<'END' || exit 1
stone
dragon
END
