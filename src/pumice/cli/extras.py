"""The extra of this package that brings what a command imports: `pumice` alone is for one machine without a cluster."""

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
    "kubernetes": ("aiohttp", "cryptography", "google", "grpc", "httptools", "lark", "numpy", "re2"),
    "top": ("textual",),
    "web": ("jinja2",),
}
"""By the name it is imported by; pyproject.toml has them by the name they are installed by."""


@dataclass(frozen=True, slots=True)
class Installation:
    """The origin of this program. ``source``: the wheel or source tree that it was installed from, where that still is."""

    python: str
    source: str = ""
    editable: bool = False
    requires: Sequence[str] = ()
    """As its metadata has them: with the extra behind a semicolon."""
    pipx: bool = False


def missing(command: str, error: ModuleNotFoundError) -> Unavailable:
    """The sentence for a command that does not find a package. Raises the error itself where our own module is missing."""
    package = (error.name or "pumice").partition(".")[0]
    if package.startswith("pumice"):
        raise error
    extra = next((extra for extra, brought in BROUGHT_BY.items() if package in brought), "")
    lacking = f"{command} needs the Python package {package}, which is not installed"
    return Unavailable(f"{lacking}; {brings(extra, this_installation())}")


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


def brings_laboratory(of: Installation, version: str) -> str:
    """Return the command that installs the laboratory beside this: from a file or a folder, for in an index anybody could hold
    its name."""
    wheel = f"pumice_lab-{version}-*.whl"
    found: list[Path] = []
    if of.source:
        source = Path(of.source)
        found = [path for path in ([source / "lab"] if source.is_dir() else sorted(source.parent.glob(wheel))) if path.exists()]
    if not found:
        return f"install the file {wheel}, which `make wheel` writes beside this one's"
    if of.pipx:
        return f"pipx inject pumice '{found[0]}' brings it"
    return f"{shlex.quote(of.python)} -m pip install {'-e ' if of.editable else ''}'{found[0]}' brings it"


def _of_extra(extra: str, requires: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for line in requires:
        wanted, _, marker = line.partition(";")
        if f'extra == "{extra}"' in marker.replace("'", '"'):
            found.add(wanted.strip())
    return found


def this_installation() -> Installation:
    """By what its installer wrote down (PEP 610)."""
    try:
        own = metadata.distribution("pumice")
        reported = json.loads(own.read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return Installation(sys.executable)
    path = unquote(urlsplit(reported.get("url", "")).path) if str(reported.get("url", "")).startswith("file:") else ""
    return Installation(
        sys.executable, path if path and Path(path).exists() else "", bool(reported.get("dir_info", {}).get("editable")),
        tuple(own.requires or ()), Path(sys.prefix, "pipx_metadata.json").exists(),
    )  # fmt: skip
