#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain sum.txt || exit 1
[ "$(tr -d "[:space:]" < sum.txt)" = 187 ] || exit 1
