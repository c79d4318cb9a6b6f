#!/bin/sh
# Generate the Python side of the kubelet protocols from the .proto files beside it. By an old compiler: what it writes runs with every
# protobuf and grpcio since then (newer ones write code that asks for themselves), so that ours may stand beside anybody's.
# A plugin needs the messages alone; the stubs are the laboratory's, which plays the kubelet.
set -eu
cd "$(dirname "$0")/.."
plugin=pumice/adapters/kubelet/proto
lab=pumice_lab/kubelet/proto
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet 'grpcio-tools==1.62.3' 'setuptools<80'
protoc="$tools/bin/python -m grpc_tools.protoc"
$protoc -Isrc --python_out=src --grpc_python_out="$tools" "$plugin/deviceplugin.proto"
$protoc -Isrc --python_out=src "$plugin/draplugin.proto" "$plugin/pluginregistration.proto"
mv "$tools/$plugin/deviceplugin_pb2_grpc.py" "lab/src/$lab/"
$protoc -Ilab/src --python_out=lab/src --grpc_python_out=lab/src "$lab/podresources.proto"
