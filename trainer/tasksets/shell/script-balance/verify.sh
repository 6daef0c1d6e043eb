#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain balance.sh || exit 1
check() { got=$(timeout 5 bash balance.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check yes '(a[b]{c})'
check no '(]'
check no '(('
check yes ''
check no ')('
exit 0
