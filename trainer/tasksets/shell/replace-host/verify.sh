#!/usr/bin/env bash
# Solved if the workspace holds what was asked for. What is in it is not to be trusted: quoted, no links followed.
plain() { [ -f "$1" ] && [ ! -L "$1" ]; }
! grep -rq "old\.example\.com" conf || exit 1
plain conf/a.ini && plain conf/deep/b.ini || exit 1
[ "$(grep -c "new\.example\.com" conf/a.ini)" = 2 ] && grep -qx "url=https://new.example.com:8443/x" conf/deep/b.ini && grep -qx "other=oldXexample.com" conf/a.ini || exit 1
