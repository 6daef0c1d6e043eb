#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain out/red.txt && plain out/blue.txt && [ "$(ls out | wc -l)" -eq 2 ] || exit 1
printf "1\n3\n" | cmp -s - out/red.txt && printf "2\n" | cmp -s - out/blue.txt || exit 1
