#!/usr/bin/env bash
echo "printf '%s\\n' \"\$1\" | tr 'A-Za-z' 'N-ZA-Mn-za-m'" > caesar.sh
