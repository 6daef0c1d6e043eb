#!/usr/bin/env bash
cat > anagram.sh <<'X'
f() { printf %s "$1" | tr A-Z a-z | fold -w1 | sort | tr -d '\n'; }
[ "$(f "$1")" = "$(f "$2")" ] && echo yes || echo no
X
