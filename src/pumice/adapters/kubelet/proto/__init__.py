"""Generated from the .proto files in this folder by tools/protos.sh; not edited by hand."""
