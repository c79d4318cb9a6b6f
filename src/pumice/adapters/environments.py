"""The environment that processes were started with, read from /proc."""

from __future__ import annotations

from pathlib import Path


def variable_of(pid: int, name: str) -> bytes:
    """Return the value of this variable at the process's start; empty where it was not set or this user may not read it."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    prefix = f"{name}=".encode()
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), b"")
