#!/usr/bin/env bash
set -e
mkdir t t/sub && echo hello > t/readme.txt && echo x > t/sub/x.txt && tar -cf bundle.tar -C t readme.txt sub && rm -r t
