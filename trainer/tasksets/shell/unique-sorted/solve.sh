#!/usr/bin/env bash
sort -u names.txt > unique.txt
