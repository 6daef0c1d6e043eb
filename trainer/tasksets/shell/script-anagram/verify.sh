#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain anagram.sh || exit 1
check() { got=$(timeout 5 bash anagram.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check yes Listen Silent
check no apple papel2
check no abc ab
check yes a A
exit 0
