#!/usr/bin/env bash
echo 'printf "%d:%02d:%02d\n" $(($1/3600)) $(($1%3600/60)) $(($1%60))' > duration.sh
