#!/usr/bin/env bash
awk '/^\[/{s=$0} s=="[server]" && /^port/{split($0,a,/ *= */);print a[2]}' app.ini > port.txt
