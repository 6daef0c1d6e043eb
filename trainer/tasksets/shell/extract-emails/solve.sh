#!/usr/bin/env bash
grep -oE '[A-Za-z0-9._+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+' letter.txt > emails.txt
