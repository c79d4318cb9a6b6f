"""Answers by guess, and the links by which their mounts lead to host folders: until the kubelet's record says whose an answer is
they lead nowhere, so that no container starts; then to the folders of that one, whoever was guessed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pumice.adapters.kubelet.checkpoint import Recorded
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.node.protocol import Answer, Mount
from pumice.wire import names

_TO, _GUESSED, _EXCHANGED, _OWNER = "to", "guessed", "exchanged", "owner"


@dataclass(frozen=True, slots=True)
class Meant:
    """The container that an answer by guess was for, and the answer's number; that is empty where an older plugin answered."""

    pod: str
    container: str
    number: str = ""

    @classmethod
    def by(cls, one: Recorded) -> Meant | None:
        """Return what the answer says of itself; None where it was not given by guess."""
        text = one.annotations.get(names.ANSWERED_FOR, "")
        return cls(*(text.split("/", 2))) if text.count("/") in (1, 2) else None

    @property
    def text(self) -> str:
        return f"{self.pod}/{self.container}/{self.number}"

    def is_for(self, one: Recorded) -> bool:
        return (self.pod, self.container) == (one.pod, one.container)


class AnswerLinks:
    """Those of one resource below ``folder``; without it no answer mounts a folder of its container's own. What an answer mounts
    lies below ``<folder>/<number>/to``, a link to the links of the one guessed, or of the one that it was exchanged for. A
    runtime makes a source of a mount that is missing, but not behind a link to nowhere. ``first``: digits that all numbers of the
    resource begin with."""

    def __init__(self, folder: str, first: str) -> None:
        self._folder, self._first = folder, first

    def mounted(self, answer: Answer, number: str) -> Answer:
        """Return the answer with mounts that lead over links."""
        return replace(answer, mounts=tuple(self._over(mount, answer.own, number) for mount in answer.mounts))

    def open(self, number: str, owner: str, own: Sequence[str]) -> None:
        """Make the links of the one guessed, which lead nowhere yet. Raises OSError."""
        if self._folder:
            self._make(number, _GUESSED, owner, own)
            self._lead(number, "nobody")

    def confirm(self, number: str) -> None:
        """Have the links lead to whom was guessed. Raises OSError."""
        if self._folder:
            self._lead(number, _GUESSED)

    def exchange(self, number: str, owner: str, own: Sequence[str]) -> None:
        """Have the links lead to another's folders. Raises OSError."""
        if self._folder:
            self._make(number, _EXCHANGED, owner, own)
            self._lead(number, _EXCHANGED)

    def owner(self, number: str) -> str:
        """Return to whom the links lead; empty for nobody."""
        with suppress(OSError):
            return os.readlink(self._path(number) / _TO / _OWNER) if self._folder else ""
        return ""

    def keep(self, numbers: Collection[str]) -> None:
        """Remove all but these."""
        for number in self.numbers() - set(numbers):
            shutil.rmtree(self._path(number), ignore_errors=True)

    def numbers(self) -> set[str]:
        with suppress(OSError):
            return {name for name in os.listdir(self._folder) if name.startswith(self._first)} if self._folder else set()
        return set()

    def _over(self, mount: Mount, own: Sequence[str], number: str) -> Mount:
        for at, folder in enumerate(own):
            if mount.host_path == folder or mount.host_path.startswith(f"{folder}/"):
                rest = mount.host_path.removeprefix(folder)
                return replace(mount, host_path=f"{self._path(number) / _TO}/{at}{rest}")
        return mount

    def _make(self, number: str, name: str, owner: str, own: Sequence[str]) -> None:
        folder = self._path(number) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for at, target in enumerate(own):
            (folder / str(at)).symlink_to(os.path.relpath(target, folder))
        (folder / _OWNER).symlink_to(owner)

    def _lead(self, number: str, target: str) -> None:
        draft = self._path(number) / f".{_TO}"
        draft.unlink(missing_ok=True)
        draft.symlink_to(target)
        draft.rename(self._path(number) / _TO)

    def _path(self, number: str) -> Path:
        return Path(self._folder) / number


def message(answer: Answer) -> Any:
    """Return the answer as the protocol's message."""
    return pb.ContainerAllocateResponse(
        envs=dict(answer.env),
        mounts=[
            pb.Mount(container_path=m.container_path, host_path=m.host_path, read_only=m.read_only)
            for m in answer.mounts
        ],
        devices=[
            pb.DeviceSpec(container_path=n.container_path, host_path=n.host_path, permissions=n.permissions)
            for n in answer.nodes
        ],
        annotations=dict(answer.annotations),
        cdi_devices=[pb.CDIDevice(name=name) for name in answer.cdi],
    )


def unlike(given: Any, due: Answer) -> str:
    """Return what an answer that was given has otherwise than the one that is due and is not held by host files; empty where
    nothing is. ``due``: with its mounts over the links of the answer given."""
    wanted = message(due)
    for name in sorted({*given.envs, *wanted.envs} - due.kept):
        if given.envs.get(name) != wanted.envs.get(name):
            return f"{name} is {given.envs.get(name)!r} and not {wanted.envs.get(name)!r}"
    return next((f"its {what} differ" for what, shape in _SHAPES.items() if shape(given) != shape(wanted)), "")


_SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "mounts": lambda one: {(mount.container_path, mount.host_path, mount.read_only) for mount in one.mounts},
    "device nodes": lambda one: {(node.container_path, node.host_path, node.permissions) for node in one.devices},
    "CDI devices": lambda one: {device.name for device in one.cdi_devices},
    "annotations": lambda one: {key: text for key, text in one.annotations.items() if key != names.ANSWERED_FOR},
}
