"""Which extra of this package brings what a command imports: `pumice` alone is for one machine without a cluster."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pumice.model.errors import Unavailable

BROUGHT_BY: Final = {
    "kubernetes": ("aiohttp", "cryptography", "google", "grpc", "httptools", "numpy"),
    "local": ("lark", "re2"),
}
"""By the name it is imported by; pyproject.toml has them by the name they are installed by."""
LEFT_OUT_OF_IMAGES: Final = ("pumice.cluster", "pumice.machine")


@dataclass(frozen=True, slots=True)
class Installation:
    """How this program came here. ``source``: the wheel or source tree that it was installed from, where that still is."""

    python: str
    source: str = ""
    editable: bool = False
    requires: Sequence[str] = ()
    """As its metadata has them: with the extra behind a semicolon."""
    pipx: bool = False


def missing(command: str, error: ModuleNotFoundError, *, all_of_local: bool = False) -> Unavailable:
    """The sentence for a command that does not find a package. Raises the error itself where our own module is missing."""
    package = (error.name or "pumice").partition(".")[0]
    if (error.name or "").startswith(LEFT_OUT_OF_IMAGES):
        return Unavailable(f"{command} is not part of this image, which holds the daemons alone; it is where Pumice is installed")
    if package == "pumice":
        raise error
    extra = next((extra for extra, brought in BROUGHT_BY.items() if package in brought), "")
    wanted = "local" if all_of_local else extra
    lacking = f"{command} needs the Python package {package}, which is not installed"
    return Unavailable(f"{lacking}; {brings(wanted, this_installation())}")


def brings(extra: str, of: Installation) -> str:
    """Return the command to type. It asks an index for others' packages alone: anybody could take the name of ours there."""
    named = sorted(_of_extra(extra, of.requires)) if extra else []
    if of.pipx and named:
        return f"pipx inject pumice {shlex.join(named)} brings it"
    pip = f"{shlex.quote(of.python)} -m pip install"
    if of.source:
        how = "-e " if of.editable else "" if extra else "--force-reinstall "
        return f"{pip} {how}'{of.source}{f'[{extra}]' if extra else ''}' brings it"
    return f"{pip} {shlex.join(named)} brings it" if named else "install Pumice again from its wheel or source tree"


def _of_extra(extra: str, requires: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for line in requires:
        wanted, _, marker = line.partition(";")
        if f'extra == "{extra}"' in marker.replace("'", '"'):
            inner = wanted.strip().removeprefix("pumice[")
            found |= _of_extra(inner.rstrip("]"), requires) if inner != wanted.strip() else {inner}
    return found


def this_installation() -> Installation:
    """By what its installer wrote down (PEP 610)."""
    try:
        own = metadata.distribution("pumice")
        told = json.loads(own.read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return Installation(sys.executable)
    path = unquote(urlsplit(told.get("url", "")).path) if str(told.get("url", "")).startswith("file:") else ""
    return Installation(
        sys.executable, path if path and Path(path).exists() else "", bool(told.get("dir_info", {}).get("editable")),
        tuple(own.requires or ()), Path(sys.prefix, "pipx_metadata.json").exists(),
    )  # fmt: skip
