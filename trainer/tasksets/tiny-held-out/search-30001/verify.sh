#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds list.txt <<'END' || exit 1
copper silver
hammer
paper
apple
copper marble
ocean
END
holds letter.txt <<'END' || exit 1
copper silver
copper marble
END
