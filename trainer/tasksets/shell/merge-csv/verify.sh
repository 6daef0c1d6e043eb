#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain all.csv || exit 1
printf "day,sales\n1,10\n2,20\n1,5\n" | cmp -s - all.csv || exit 1
