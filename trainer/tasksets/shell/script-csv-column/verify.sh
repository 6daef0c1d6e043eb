#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain column.sh || exit 1
check() { got=$(timeout 5 bash column.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
printf "id,name,tag\n1,a,x\n2,b,y\n" > "$scratch/a.csv"
check $'1\n2' "$scratch/a.csv" id
check $'x\ny' "$scratch/a.csv" tag
exit 0
