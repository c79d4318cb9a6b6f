"""The laboratory (the package pumice-lab): an emulated machine and a cluster of this machine, in a wheel of its own.

It is looked for by name when a command needs it, and never imported: a product without it is complete. Only the very version of
this product is taken.

The emulated machine that a command is to run on: named, or the user's own, made on first use.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import re
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from pumice import __version__
from pumice.model.errors import BadInput, Unavailable
from pumice.wire import variables

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


DEFAULT_MACHINE = "2xGeForce-GTX-1080-Ti"


def the_machine(emulated: str | None, present: Mapping[str, str]) -> Path:
    """The machine's directory: named by ``emulated`` (directory, model file, cards), by PUMICE_MACHINE, or the user's own.

    Raises PumiceError when it cannot be had.
    """
    machine("`--emulated`" if emulated is not None else "an emulated machine")
    if not emulated and present.get(variables.MACHINE):
        directory = Path(present[variables.MACHINE])
    elif emulated and _is_machine(Path(emulated)):
        directory = Path(emulated)
    else:
        directory = _own(emulated or DEFAULT_MACHINE, present)
    if not _is_machine(directory):
        raise BadInput(f"{directory}: no emulated machine here; make one with `pumice machine create`")
    return directory.resolve()


def machines(present: Mapping[str, str]) -> list[Path]:
    """Every emulated machine of this user that a command may have been run on, PUMICE_MACHINE first."""
    named = [Path(present[variables.MACHINE]).resolve()] if present.get(variables.MACHINE) else []
    made = sorted(path.parent.resolve() for path in _home(present).glob("*/state"))
    return list(dict.fromkeys([*named, *made]))


def made_machines(emulated: str, present: Mapping[str, str]) -> list[Path]:
    """The emulated machines that ``--emulated`` means where nothing is to be made: all of this user's, or the one that is named
    by its directory, model file or cards. Raises PumiceError when there is none of that name."""
    if not emulated:
        return machines(present)
    for directory in (Path(emulated), _home(present) / _own_name(emulated)):
        if _is_machine(directory):
            return [directory.resolve()]
    made = ", ".join(path.name for path in machines(present)) or "none"
    raise BadInput(f"--emulated {emulated}: no emulated machine of yours; there are {made}")


def machine_environment(directory: Path, present: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that meets this machine's driver instead of a real one."""
    with machine().open_machine(directory) as opened:
        front = opened.environment()
    joined = {
        name: ":".join(filter(None, (front[name], present.get(name, ""))))
        for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "PATH")
    }
    return {**present, **front, **joined}


def driver(name: str, present: Mapping[str, str]) -> str:
    """The library ``name`` of the emulated machine, where PUMICE_MACHINE names one and LD_LIBRARY_PATH does not lead there
    already, else whichever the loader finds."""
    folders = present.get("LD_LIBRARY_PATH", "").split(":")
    if present.get(variables.MACHINE) and not any(os.path.exists(f"{folder}/{name}") for folder in folders):
        return str(machine().library_dir() / name)
    return name


def driver_of_machines() -> Path:
    """The folder with their NVML. In front of it in a program's path there may be one with an older CUDA alone."""
    from pumice.adapters.native import loadable

    return loadable(machine().library_dir())


def _is_machine(directory: Path) -> bool:
    """Return whether a machine lies here. Raises BadInput when this user may not look."""
    try:
        return (directory / "state").is_file()
    except PermissionError as error:
        raise BadInput(f"{directory}: {error.strerror}") from error


def _home(present: Mapping[str, str]) -> Path:
    home = present.get("XDG_DATA_HOME") or Path(present.get("HOME") or os.path.expanduser("~")) / ".local" / "share"
    return Path(home) / "pumice" / "machines"


def _is_file(model: str) -> bool:
    return re.search(r"\.(ya?ml|toml)$", model) is not None


def _own_name(model: str) -> str:
    """The folder's name of the user's machine of this model; a model file's is told by its content."""
    if not (_is_file(model) and Path(model).is_file()):
        return model
    import hashlib  # slow to load

    return f"{Path(model).stem}-{hashlib.sha256(Path(model).read_bytes()).hexdigest()[:8]}"


def _own(model: str, present: Mapping[str, str]) -> Path:
    """The user's machine of this model, made under a lock when it is not there: two programs may start at once."""
    is_file = _is_file(model)
    if Path(model).is_dir() or ("/" in model and not is_file):
        raise BadInput(f"{model}: no emulated machine here; make one with `pumice machine create {model}`")
    directory = _home(present) / _own_name(model)
    if _is_machine(directory):
        return directory
    machines = machine()
    described = machines.load_model(Path(model)) if is_file else machines.machine_of(model)
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(directory.parent / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise BadInput(f"{directory}: the emulated machine cannot be made: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "state").exists():
            machines.create(described, directory).close()
    finally:
        os.close(lock)
    return directory
