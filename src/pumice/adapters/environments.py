"""What processes were started with, as /proc shows it."""

from __future__ import annotations

from pathlib import Path


def variable_of(pid: int, name: str) -> bytes:
    """What this variable was at the process's start; empty where it was not set, or cannot be told to this user."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return b""
    prefix = f"{name}=".encode()
    return next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), b"")
