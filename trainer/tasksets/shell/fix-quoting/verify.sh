#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain greet.sh || exit 1
check() { got=$(timeout 5 bash greet.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check 'Hello, Ann   Lee!' 'Ann   Lee'
check 'Hello, *!' '*'
check 'Hello, Bo!' Bo
exit 0
