#!/usr/bin/env bash
# Runs the benchmarks of bench/ one after the other. Each prints its own figures and says
# what it needs; one whose peer is missing says so and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
for dir in bench/*/; do
  [ -f "$dir/main.go" ] || continue
  echo "== ${dir%/}"
  if [ -f "$dir/go.mod" ]; then (cd "$dir" && GOWORK=off go run .); else GOWORK=off go run "./${dir%/}"; fi
done
