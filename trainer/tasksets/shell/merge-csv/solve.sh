#!/usr/bin/env bash
(cat jan.csv; tail -n +2 feb.csv) > all.csv
