#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
[ -x bin/run ] && [ -x bin/tool.sh ] && [ ! -x bin/data.txt ] && [ ! -x bin/notes ] || exit 1
