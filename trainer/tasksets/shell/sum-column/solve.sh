#!/usr/bin/env bash
awk -F, 'NR>1{s+=$3} END{print s}' amounts.csv > sum.txt
