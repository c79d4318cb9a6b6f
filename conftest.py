"""The rules of every test of the project are in the kit, so that the tests of tests can have it too."""

import importlib.util
import os

import pytest

# Before anybody imports gRPC: where an earlier test has used it, its handlers end a child that is forked (a journal's writer).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

if importlib.util.find_spec("pumice_lab") is None:
    pytest.exit("the laboratory (pumice_lab) is a package of its own and not installed here: run `make setup` again", 2)

pytest_plugins = ["kit.pytest_plugin"]
