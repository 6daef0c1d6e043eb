#!/usr/bin/env bash
# Solved if the workspace holds what was asked for, byte by byte.
holds() { [ -f "$1" ] && [ ! -L "$1" ] && cmp -s -- "$1" -; }

holds numbers.txt <<'END' || exit 1
saddle cloud
rabbit
saddle maple
saddle dragon
saddle tiger
ocean
END
holds history.txt <<'END' || exit 1
saddle cloud
saddle maple
saddle dragon
saddle tiger
END
