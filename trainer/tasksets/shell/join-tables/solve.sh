#!/usr/bin/env bash
awk 'NR==FNR{n[$1]=$2;next}{print n[$1],$2}' users.txt orders.txt > result.txt
