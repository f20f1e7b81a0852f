#!/usr/bin/env bash
# Searches every fuzz target of the workspace for the given time each: tools/fuzz.sh 30s
# Minimizing is bounded: by default Go spends up to a minute on each input it finds interesting.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-30s}
go list -f '{{.ImportPath}} {{.Dir}}' work | while read -r package dir; do
  { grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null || true; } | sed 's/^func //' | while read -r target; do
    echo "fuzz: $package $target for $time"
    go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x </dev/null
  done
done
