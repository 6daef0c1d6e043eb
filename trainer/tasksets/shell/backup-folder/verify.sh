#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
plain backup.tar.gz || exit 1
out=$(mktemp -d) && tar -xzf backup.tar.gz -C "$out" 2>/dev/null || exit 1
diff -r project "$out/project" >/dev/null || exit 1
