#!/usr/bin/env bash
cat > prime.sh <<'X'
n=$1; ((n<2)) && { echo no; exit; }
for ((i=2;i*i<=n;i++)); do ((n%i==0)) && { echo no; exit; }; done
echo yes
X
