#!/bin/sh
# Generates the Go code of the examples' hello.proto and hello.thrift. Needs protoc and
# the Thrift compiler; the Go plug-ins are those of tools/go.mod.
set -eu
cd "$(dirname "$0")"
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd ../tools && GOWORK=off go build -o "$bin/" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc \
	mvdan.cc/gofumpt)
PATH="$bin:$PATH"

protoc -I grpc/hellopb hello.proto \
	--go_out=grpc/hellopb --go_opt=paths=source_relative \
	--go-grpc_out=grpc/hellopb --go-grpc_opt=paths=source_relative
thrift --gen go:skip_remote -out thrift thrift/hello.thrift
gofumpt -w grpc/hellopb thrift/hello
