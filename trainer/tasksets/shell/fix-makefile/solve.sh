#!/usr/bin/env bash
printf 'build/out.txt:\n\tmkdir -p build\n\techo built > build/out.txt\n' > Makefile
