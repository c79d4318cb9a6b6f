#!/bin/sh
# Generate the Python side of the kubelet protocols from the .proto files beside it (needs grpcio-tools).
set -eu
cd "$(dirname "$0")/../src"
proto=pumice/adapters/kubelet/proto
"${PYTHON:-../.venv/bin/python}" -m grpc_tools.protoc -I. --python_out=. --grpc_python_out=. \
    "$proto/deviceplugin.proto" "$proto/podresources.proto"
