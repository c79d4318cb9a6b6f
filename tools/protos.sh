#!/bin/sh
# Generate the Python side of the kubelet protocols from the .proto files beside it. By an old compiler: what it writes runs with every
# protobuf and grpcio since then (newer ones write code that asks for themselves), so that ours may stand beside anybody's.
set -eu
cd "$(dirname "$0")/../src"
proto=pumice/adapters/kubelet/proto
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'grpcio-tools==1.62.3' 'setuptools<80'
"$tools/bin/python" -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. "$proto/deviceplugin.proto" "$proto/podresources.proto"
