#!/usr/bin/env bash
tar -czf backup.tar.gz project
