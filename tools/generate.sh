#!/usr/bin/env bash
# Runs every go:generate line, with the pinned plugins on the path.
set -euo pipefail
cd "$(dirname "$0")/.."
plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
for tool in google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc; do
  GOWORK=off go build -modfile=tools/go.mod -o "$plugins/" "$tool"
done
export PATH="$plugins:$PATH" GOWORK=off
git grep -lE '^//go:generate ' -- '*.go' | while read -r file; do
  echo "generate: $file"
  (cd "$(dirname "$file")" && go generate "./$(basename "$file")")
done
