#!/usr/bin/env bash
grep -c ERROR app.log > errors.txt
