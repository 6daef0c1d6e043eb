#!/usr/bin/env bash
echo 'echo $(($1 + $2))' > add.sh
