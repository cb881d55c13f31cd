#!/usr/bin/env bash
# python.sh [NAME...]: prints the first Python that can make .venv: 3.11 or newer, with ensurepip, which Debian packages
# apart.
[ $# -gt 0 ] || set -- python3.13 python3.12 python3.11 python3
for name in "$@"; do
    "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    echo "$name"
    break
done
