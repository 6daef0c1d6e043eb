#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
for n in a b c; do plain notes/$n.md && [ ! -e notes/$n.txt ] || exit 1; done
plain notes/keep.log && [ "$(cat notes/b.md)" = second ] || exit 1
