#!/bin/sh
# Generates the code for demo.proto and demo.thrift: Go here, Python in test/py.
# Needs protoc and the Thrift compiler; the Go plug-ins are those of tools/go.mod.
set -eu
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd "$root/tools" && GOWORK=off go build -o "$bin/" \
	google.golang.org/protobuf/cmd/protoc-gen-go \
	google.golang.org/grpc/cmd/protoc-gen-go-grpc \
	mvdan.cc/gofumpt)
PATH="$bin:$PATH"

module=github.com/laneway-dev/laneway/internal/demo
protoc -I . demo.proto \
	--go_out=. --go_opt=module=$module \
	--go-grpc_out=. --go-grpc_opt=module=$module \
	--python_out="$root/test/py"

thrift --gen go:skip_remote -out . demo.thrift
gofumpt -w demopb/*.go demothrift/*.go
thrift --gen py -out "$root/test/py" demo.thrift
rm -f "$root/test/py/__init__.py" "$root/test/py/laneway_demo/Chain-remote"
