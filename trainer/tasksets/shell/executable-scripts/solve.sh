#!/usr/bin/env bash
for f in bin/*; do [ "$(head -c2 "$f")" = "#!" ] && chmod +x "$f"; done; true
