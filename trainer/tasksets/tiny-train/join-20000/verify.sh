#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds table.txt <<'END' || exit 1
kettle
marble
END
holds numbers.txt <<'END' || exit 1
lemon
island
END
holds names.txt <<'END' || exit 1
kettle
marble
lemon
island
END
