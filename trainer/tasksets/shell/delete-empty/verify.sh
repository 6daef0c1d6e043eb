#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
[ -z "$(find tree -type f -empty)" ] && plain tree/a.txt && plain tree/d/b.txt && [ -d tree/e ] || exit 1
