#!/usr/bin/env bash
awk '{if(length($0)>m)m=length($0)}END{print m}' text.txt > longest.txt
