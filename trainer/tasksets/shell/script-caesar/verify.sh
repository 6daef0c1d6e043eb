#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain caesar.sh || exit 1
check() { got=$(timeout 5 bash caesar.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check 'Uryyb, jbeyq!' 'Hello, world!'
check abc nop
check '1 2' '1 2'
exit 0
