#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds table.txt <<'END' || exit 1
orange ginger tiger
jungle saddle garden
ocean rabbit
bridge temple island
maple paper
END
number log.txt 13 || exit 1
