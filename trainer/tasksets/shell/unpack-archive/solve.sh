#!/usr/bin/env bash
mkdir unpacked && tar -xf bundle.tar -C unpacked
