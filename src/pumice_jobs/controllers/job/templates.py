"""A task's pod template as Kubernetes reads it: what is null is not there. The definition of Jobs leaves
templates as they come.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from pumice.wire.batch import Task

Json = dict[str, Any]


def template(task: Task) -> Json:
    """A fresh copy; empty where it is none. Raises DecodeError."""
    return read(bytes(task.template))


def read(written: bytes) -> Json:
    return mapping(msgspec.json.decode(_plain(written))) if written else {}


@lru_cache(256)
def _plain(written: bytes) -> bytes:
    """Thousands of Jobs are of one template."""
    return msgspec.json.encode(_without_nulls(msgspec.json.decode(written)))


def mapping(value: Any) -> Json:
    """A member that should be one; empty where it is something else."""
    return value if isinstance(value, dict) else {}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    return [_without_nulls(member) for member in value] if isinstance(value, list) else value
