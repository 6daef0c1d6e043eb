#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain prime.sh || exit 1
check() { got=$(timeout 5 bash prime.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check yes 7
check no 1
check no 91
check yes 97
check no 0
check yes 2
exit 0
