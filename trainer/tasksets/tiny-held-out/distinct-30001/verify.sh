#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds names.txt <<'END' || exit 1
stone
bridge
tiger
stone
bridge
END
holds table.txt <<'END' || exit 1
bridge
stone
tiger
END
