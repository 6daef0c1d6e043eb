#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain errors.txt || exit 1
[ "$(tr -d "[:space:]" < errors.txt)" = 4 ] || exit 1
