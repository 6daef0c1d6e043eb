#!/usr/bin/env bash
ls -S data | head -1 > largest.txt
