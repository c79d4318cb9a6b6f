"""The laboratory (the package pumice-lab): an emulated machine and a cluster of this machine, in a wheel of its own.

It is looked for by name when a command needs it, and never imported: a product without it is complete. Only the very version of
this product is taken.
"""

from __future__ import annotations

import importlib
from importlib.machinery import PathFinder
from typing import Any, Final

from pumice import __version__
from pumice.model.errors import Unavailable

PACKAGE: Final = "pumice_lab"
DISTRIBUTION: Final = "pumice-lab"
COMMANDS: Final = "pumice.commands"
"""The group of its entry points."""


def is_here() -> bool:
    """True where a laboratory is installed, of whatever version."""
    return PathFinder.find_spec(PACKAGE) is not None


def command(name: str) -> str:
    """Return where its command is, as ``module:app``. Raises Unavailable where none of this version is installed."""
    from importlib import metadata  # slow to load

    who = f"`pumice {name}`"
    _package(who)
    try:
        found = metadata.distribution(DISTRIBUTION).entry_points.select(group=COMMANDS, name=name)
    except metadata.PackageNotFoundError:
        raise _lacking(who) from None
    return next(iter(found)).value


def machine(who: str = "an emulated machine") -> Any:
    """Return its package of emulated machines. Raises Unavailable where none of this version is installed."""
    _package(who)
    return importlib.import_module(f"{PACKAGE}.machine")


def _package(who: str) -> None:
    try:
        version = importlib.import_module(PACKAGE).__version__
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise _lacking(who) from None
    if version != __version__:
        raise _lacking(who, f" of version {__version__}, and {version} is installed")


def _lacking(who: str, why: str = ", which is not installed") -> Unavailable:
    from pumice.cli.extras import brings_laboratory, this_installation

    return Unavailable(f"{who} needs the laboratory of Pumice{why}; {brings_laboratory(this_installation(), __version__)}")
