#!/usr/bin/env bash
find tree -type f -empty -delete
