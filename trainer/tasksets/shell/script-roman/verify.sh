#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain roman.sh || exit 1
check() { got=$(timeout 5 bash roman.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check IV 4
check XIX 19
check MCMXCIV 1994
check MMMDCCCLXXXVIII 3888
exit 0
