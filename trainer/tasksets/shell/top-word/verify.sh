#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain word.txt || exit 1
[ "$(tr -d "[:space:]" < word.txt)" = river ] || exit 1
