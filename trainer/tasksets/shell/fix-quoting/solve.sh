#!/usr/bin/env bash
echo 'printf "Hello, %s!\n" "$1"' > greet.sh
