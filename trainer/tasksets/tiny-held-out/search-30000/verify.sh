#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds numbers.txt <<'END' || exit 1
marble
lemon
silver paper
cloud
silver ginger
silver rabbit
END
holds report.txt <<'END' || exit 1
silver paper
silver ginger
silver rabbit
END
