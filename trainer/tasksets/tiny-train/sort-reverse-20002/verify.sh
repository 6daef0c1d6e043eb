#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds users.txt <<'END' || exit 1
tiger
marble
stone
pepper
bridge
dragon
END
holds report.txt <<'END' || exit 1
tiger
stone
pepper
marble
dragon
bridge
END
