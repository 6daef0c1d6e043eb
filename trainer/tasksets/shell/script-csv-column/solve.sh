#!/usr/bin/env bash
cat > column.sh <<'X'
awk -F, -v n="$2" 'NR==1{for(i=1;i<=NF;i++)if($i==n)c=i;next}{print $c}' "$1"
X
