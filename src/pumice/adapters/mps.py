"""``ports.mps.MpsControl`` by NVIDIA's control program.

What outlives this process lies in a folder for each card: ``card`` (its UUID), ``pipe`` and ``log``. A daemon that died tells
nobody of its servers: they are known by the pipes that stand in their environment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pynvml

from pumice.adapters.regular_files import content_of, variable_of
from pumice.model.errors import Unavailable
from pumice.ports.mps import COMM, PROGRAM, DaemonSeen, folder_of
from pumice.wire import variables

PATIENCE: Final = 5.0
MOST_SERVERS: Final = 16
"""A daemon has one or two; root in a container may answer in its place, and each is asked."""
_PID: Final = re.compile("[0-9]{1,10}")


def set_exclusive(card: str, exclusive: bool) -> None:
    """Return whether the card takes one process alone, which a server then is. NVML has been initialised. Raises Unavailable."""
    mode = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else pynvml.NVML_COMPUTEMODE_DEFAULT
    try:
        pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(card), mode)
    except pynvml.NVMLError as error:
        raise Unavailable(f"its compute mode could not be set: {error}; without it a program could pass MPS by") from error


def pids_on(card: str) -> list[int]:
    """The processes that compute on the card. Raises Unavailable."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(card)
        return [process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    except pynvml.NVMLError as error:
        raise Unavailable(f"the driver does not tell who computes on it: {error}") from error


class MpsPrograms:
    """The programs of MPS on this machine. ``program``: the control program, by name or path; ``patience``: how many seconds a
    command may take."""

    def __init__(self, root: Path, program: str = PROGRAM, patience: float = PATIENCE) -> None:
        self._root, self._program, self._patience = root, program, patience

    def known(self) -> tuple[str, ...]:
        found = []
        for path in sorted(self._root.glob("*/card")):
            with suppress(OSError):
                found.append(path.read_text("utf-8").strip())
        return tuple(found)

    def look(self, card: str, *, ask: bool) -> DaemonSeen:
        pid = self._pid(card)
        if not pid:
            left = tuple(self._servers_left(card))
            return DaemonSeen(left=left if left and self._clients_left(card) else ())
        if not ask:
            return DaemonSeen(pid)
        try:
            clients = sum(len(self.say(card, f"get_client_list {server}")) for server in self.servers(card))
        except Unavailable:
            return DaemonSeen(pid, answers=False)
        return DaemonSeen(pid, answers=True, clients=clients)

    def start(self, card: str) -> None:
        if strangers := self._strangers(card):
            who = ", ".join(map(str, strangers[:5]))
            raise Unavailable(f"programs run on it that do not share it by MPS (pid {who})")
        for server in self._servers_left(card):  # of a daemon that died, and serves nobody any more
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        folder = self._folder(card)
        try:
            for name in ("pipe", "log"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / "card").write_text(card, "utf-8")
        except OSError as error:
            raise Unavailable(f"cannot write in {folder}: {error.strerror}") from error
        set_exclusive(card, True)
        self._run(card, "-d")

    def say(self, card: str, *commands: str) -> list[str]:
        return self._run(card, given="".join(f"{command}\n" for command in commands)).splitlines()

    def servers(self, card: str) -> tuple[int, ...]:
        said = (word for line in self.say(card, "get_server_list") for word in line.split())
        return tuple(int(word) for word in said if _PID.fullmatch(word))[:MOST_SERVERS]

    def kill(self, card: str, pid: int) -> None:
        if pid and pid == self._pid(card):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def quit(self, card: str) -> None:
        self.say(card, "quit")

    def forget(self, card: str) -> None:
        note = self._folder(card) / "card"
        if note.exists():
            set_exclusive(card, False)
            note.unlink(missing_ok=True)

    def _run(self, card: str, *words: str, given: str = "") -> str:
        folder = self._folder(card)
        env = {**os.environ, variables.CUDA_VISIBLE_DEVICES: card, variables.MPS_PIPES: str(folder / "pipe"),
               variables.MPS_LOGS: str(folder / "log")}  # fmt: skip
        try:
            done = subprocess.run([self._program, *words], input=given, env=env, capture_output=True, text=True, errors="replace",
                                  timeout=self._patience, start_new_session=True)  # fmt: skip
        except FileNotFoundError as error:
            raise Unavailable(f"{self._program} is not on this node, and without it nobody shares its cards by MPS") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            reported = getattr(error, "strerror", None) or f"it did not end within {self._patience:.0f} s"
            raise Unavailable(f"{self._program}: {reported}") from error
        if done.returncode != 0:
            said = " ".join((done.stderr or done.stdout).split()) or f"it ended with {done.returncode}"
            raise Unavailable(f"{self._program} {' '.join(words)}".rstrip() + f": {said}")
        return done.stdout

    def _strangers(self, card: str) -> list[int]:
        """The processes that compute on the card outside MPS. Raises Unavailable."""
        return [pid for pid in pids_on(card) if not _lives(pid)]

    def _clients_left(self, card: str) -> bool:
        """Return whether programs of a server without a daemon go on: the driver names them, for a server tells its daemon
        alone."""
        try:
            return bool(self._strangers(card))
        except Unavailable:
            return True

    def _folder(self, card: str) -> Path:
        return self._root / folder_of(card)

    def _pid(self, card: str) -> int:
        pipe = self._folder(card) / "pipe"
        pid = _noted(pipe / f"{PROGRAM}.pid")
        return pid if _lives(pid) and _pipe_of(pid) in ("", str(pipe)) else 0

    def _servers_left(self, card: str) -> Iterator[int]:
        mine = str(self._folder(card) / "pipe")
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (folder / "comm").read_text("utf-8", "replace").strip() != COMM:
                    continue
                if _pipe_of(int(folder.name)) == mine and _lives(int(folder.name)):
                    yield int(folder.name)


def _noted(path: Path) -> int:
    """The pid in a file that containers can write. 0 for none."""
    try:
        return int(content_of(path, 20))
    except (OSError, ValueError):
        return 0


def _pipe_of(pid: int) -> str:
    """The folder of pipes that a process was started with; empty where that cannot be told."""
    return os.fsdecode(variable_of(pid, variables.MPS_PIPES))


def _lives(pid: int) -> bool:
    """Return whether there is a process of MPS of that pid."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    name, _, fields = text.partition("(")[2].rpartition(")")
    return name.startswith(COMM) and fields.split()[0] not in "ZX"
