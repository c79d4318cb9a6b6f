"""Where the cluster of ``pumice up`` lies, as an option of every command that asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cluster.datadir import default_data_dir


def shown_default() -> str:
    """The default as a person writes it."""
    path, home = default_data_dir(), Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


DATA_DIR = Annotated[Path | None, flags.Option(help="The data dir given to `pumice up`.", show_default=shown_default())]
