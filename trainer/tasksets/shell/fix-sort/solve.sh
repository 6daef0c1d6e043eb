#!/usr/bin/env bash
echo 'sort -n "$1"' > sortnum.sh
