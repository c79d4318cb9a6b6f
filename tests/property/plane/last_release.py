"""The last release's own code beside today's: its package, from the repository's history, under a name of its own.

    scheduler = last_release.module("apps.scheduler.daemon")

What both share are the seams to the world that is played (``SEAMS``): values and exceptions that cross them. It reads the API
server by its own client (``client``), and cuts cards in its own words (``slices``). The text is as it was, but for the package's
name in it. Where the history does not reach it, ``missing`` says why.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from kit.release import NEWEST, ROOT

from pumice.ports.cluster import ApiError
from pumice.ports.slices import CutRefused, Place

NAME = f"pumice_{NEWEST.version.replace('.', '_')}"
FOLDER = ROOT / ".cache" / "releases" / NEWEST.commit
SEAMS = {
    "adapters.kubelet.endpoint": "adapters.kubelet.endpoint", "adapters.kubelet.presence": "adapters.kubelet.endpoint",
    **{name: name for name in ("model.errors", "ports.cards", "ports.clock", "ports.mps")},
}  # fmt: skip
"""Its modules for which today's stand in, by its names."""
NAMED = re.compile(r'^(\s*(?:from|import) )pumice(?=[. ])|((?:files|import_module)\(")pumice(?=[.")])', re.MULTILINE)
"""Where its text names its own modules."""


@cache
def missing() -> str:
    """Return why the last release is not to be had; empty where it is."""
    if FOLDER.is_dir():
        return ""
    known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", NEWEST.commit], capture_output=True, check=False)
    return "" if known.returncode == 0 else f"no history of this folder reaches {NEWEST.version} ({NEWEST.commit[:8]})"


def must_be_there() -> bool:
    """Return whether the history is whole, and reaches every release."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--is-shallow-repository"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == "false"


@cache
def module(name: str) -> ModuleType:
    """Import a module of its package, by its name below that."""
    if NAME not in sys.modules:
        if not FOLDER.is_dir():
            _unpack()
        sys.path.append(str(FOLDER))
        for its, todays in SEAMS.items():
            sys.modules[f"{NAME}.{its}"] = import_module(f"pumice.{todays}")
        for its, error in (("ports.cluster", ApiError), ("ports.slices", CutRefused)):
            setattr(import_module(f"{NAME}.{its}"), error.__name__, error)
    return import_module(f"{NAME}.{name}")


def code(name: str, *, last: bool) -> Any:
    """Return the module of this name, of the last release or of this one."""
    return module(name) if last else import_module(f"pumice.{name}")


def both(name: str) -> list[Any]:
    """Return the module of this name of each release that is there."""
    return [code(name, last=last) for last in ((False,) if missing() else (False, True))]


def client(connection: Any, *, last: bool) -> Any:
    """Return a process's way to the API server as that release uses it: by its own client."""
    return _client()(connection) if last else connection


def slices(own: Any, *, last: bool) -> Any:
    """Return the driver of cards in MIG mode as that release knows places: its journal has its own form."""
    return _Slices(own) if last else own


class _Slices:
    def __init__(self, own: Any) -> None:
        self._own, self._ports = own, module("ports.slices")
        self.profiles, self.allowed = own.profiles, own.allowed

    def slices(self, card: str) -> tuple[Any, ...]:
        its = self._ports
        return tuple(its.Slice(its.Place(one.place.card, one.place.profile, one.place.start), one.size, one.uuid, one.parts,
                               one.busy, one.nodes) for one in self._own.slices(card))  # fmt: skip

    def make(self, place: Any) -> None:
        self._own.make(_todays(place))

    def fill(self, place: Any) -> str:
        return str(self._own.fill(_todays(place)))

    def drain(self, place: Any) -> None:
        self._own.drain(_todays(place))

    def remove(self, place: Any) -> None:
        self._own.remove(_todays(place))


def _todays(place: Any) -> Place:
    return Place(place.card, place.profile, place.start)


@cache
def _client() -> Any:
    verbs: Any = module("adapters.kube.verbs").Verbs

    class Client(verbs):  # type: ignore[misc]
        def __init__(self, connection: Any) -> None:
            self.connection, self.clock, self.rng = connection, connection.clock, connection.rng

        async def request(self, *given: Any, **more: Any) -> Any:
            return await self.connection.request(*given, **more)

        async def stream(self, *given: Any, **more: Any) -> Any:
            return await self.connection.stream(*given, **more)

    return Client


def _unpack() -> None:
    """Whole or not at all: several processes may do so at one time."""
    text = subprocess.run(["git", "-C", str(ROOT), "archive", NEWEST.commit, "src/pumice"], capture_output=True, check=True)
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=FOLDER.parent))
    with tarfile.open(fileobj=io.BytesIO(text.stdout)) as archive:
        archive.extractall(draft, filter="data")
    for path in (draft / "src" / "pumice").rglob("*.py"):
        path.write_text(NAMED.sub(rf"\g<1>\g<2>{NAME}", path.read_text("utf-8")), "utf-8")
    (draft / "src" / "pumice").rename(draft / NAME)
    try:
        os.rename(draft, FOLDER)
    except OSError:  # another process was sooner
        shutil.rmtree(draft)
