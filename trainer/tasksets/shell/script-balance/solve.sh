#!/usr/bin/env bash
cat > balance.sh <<'X'
t=$1; s=
for ((i=0;i<${#t};i++)); do c=${t:i:1}; case $c in '('|'['|'{') s+=$c;; ')') [[ $s == *'(' ]] || { echo no; exit; }; s=${s%?};; ']') [[ $s == *'[' ]] || { echo no; exit; }; s=${s%?};; '}') [[ $s == *'{' ]] || { echo no; exit; }; s=${s%?};; esac; done
[ -z "$s" ] && echo yes || echo no
X
