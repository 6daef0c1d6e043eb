#!/usr/bin/env bash
grep -rl 'old\.example\.com' conf | while read -r f; do sed -i 's/old\.example\.com/new.example.com/g' "$f"; done
