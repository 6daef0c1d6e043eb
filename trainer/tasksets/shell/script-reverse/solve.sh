#!/usr/bin/env bash
echo 'printf %s "$1" | rev' > reverse.sh
