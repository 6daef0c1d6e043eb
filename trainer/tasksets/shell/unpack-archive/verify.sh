#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain unpacked/readme.txt && [ "$(cat unpacked/readme.txt)" = hello ] && plain unpacked/sub/x.txt || exit 1
