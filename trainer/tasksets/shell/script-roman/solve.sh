#!/usr/bin/env bash
cat > roman.sh <<'X'
n=$1; o=
v=(1000 900 500 400 100 90 50 40 10 9 5 4 1); s=(M CM D CD C XC L XL X IX V IV I)
for i in ${!v[@]}; do while ((n>=v[i])); do o+=${s[i]}; ((n-=v[i])); done; done; echo $o
X
