#!/usr/bin/env bash
sha256sum release.bin | cut -d' ' -f1 > digest.txt
