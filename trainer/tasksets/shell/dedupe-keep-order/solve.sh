#!/usr/bin/env bash
awk '!seen[$0]++' list.txt > clean.txt
