#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }
number() { [ -f "$1" ] && [ ! -L "$1" ] && [ "$(tr -d '[:space:]' < "$1")" = "$2" ]; }

holds users.txt <<'END' || exit 1
jungle dragon river
cloud orange
temple hammer
garden velvet rabbit
kettle ginger island
ocean bridge
END
number letter.txt 15 || exit 1
