#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain sortnum.sh || exit 1
check() { got=$(timeout 5 bash sortnum.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
printf "10\n2\n33\n" > "$scratch/n"; printf "7\n-5\n0\n" > "$scratch/m"
check $'2\n10\n33' "$scratch/n"
check $'-5\n0\n7' "$scratch/m"
exit 0
