#!/usr/bin/env bash
# Solved if the script does what was asked, on inputs that it has not seen.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
scratch=$(mktemp -d)
plain fizz.sh || exit 1
check() { got=$(timeout 5 bash fizz.sh "${@:2}" 2>/dev/null < "${INPUT:-/dev/null}") || got="status $?:$got"; [ "$got" = "$1" ] || exit 1; }
check $'1\n2\nFizz\n4\nBuzz' 5
check 1 1
check "$(for i in $(seq 1 30); do if ((i%15==0)); then echo FizzBuzz; elif ((i%3==0)); then echo Fizz; elif ((i%5==0)); then echo Buzz; else echo $i; fi; done)" 30
exit 0
