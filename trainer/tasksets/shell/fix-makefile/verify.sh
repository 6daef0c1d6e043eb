#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
command -v make >/dev/null || exit 7
rm -rf build
make >/dev/null 2>&1 || exit 1
plain build/out.txt && [ "$(cat build/out.txt)" = built ] || exit 1
