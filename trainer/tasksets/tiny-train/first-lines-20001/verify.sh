#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds main.txt <<'END' || exit 1
orange
cloud
jungle
lemon
silver
garden
hammer
ginger
saddle
END
holds items.txt <<'END' || exit 1
orange
cloud
jungle
lemon
silver
END
