#!/usr/bin/env bash
cat > max.sh <<'X'
m=$1; for n in "$@"; do ((n>m)) && m=$n; done; echo $m
X
