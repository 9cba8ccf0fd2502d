#!/bin/sh
# Prints which real-guest tests ran and which were skipped, with the reason, from their log.
# usage: ran.sh LOG
set -eu
sort -u -o "$1" "$1"
cat "$1"
ran=$(grep -c '^RAN ' "$1" || true)
skipped=$(grep -c '^SKIPPED ' "$1" || true)
echo "real-guest tests: $ran ran, $skipped skipped"
