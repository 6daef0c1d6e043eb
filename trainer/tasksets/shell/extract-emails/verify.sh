#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain emails.txt || exit 1
printf "ann@example.org\nbob.k@mail.example.com\nsupport+eu@example.net\n" | cmp -s - emails.txt || exit 1
