#!/usr/bin/env bash
mkdir -p out && awk '{print $2 > ("out/" $1 ".txt")}' events.txt
