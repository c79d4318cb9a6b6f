"""The cluster of ``pumice up``: where it lies, whether it runs, and the option of the commands that ask for it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Annotated

from pumice.cli import flags


def default_data_dir() -> Path:
    """Return the data dir of who names none."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "pumice" / "cluster"


def kubeconfig_of(data_dir: Path) -> Path:
    return data_dir / "kubeconfig"


def lock_of(data_dir: Path) -> Path:
    return data_dir / "lock"


def is_held(data_dir: Path) -> bool:
    """True while some process holds the data dir: a cluster runs or starts there."""
    try:
        lock = os.open(lock_of(data_dir), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def shown_default() -> str:
    """The default as a person writes it."""
    path, home = default_data_dir(), Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


DATA_DIR = Annotated[Path | None, flags.Option(help="The data dir given to `pumice up`.", show_default=shown_default())]
