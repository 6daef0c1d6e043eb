#!/usr/bin/env bash
tr 'A-Z' 'a-z' < poem.txt | tr -cs 'a-z' '\n' | sort | uniq -c | sort -rn | awk 'NR==1{print $2}' > word.txt
