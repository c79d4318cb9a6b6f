"""A conversation with a child that holds device memory (tests/native/children/holder.py)."""

from __future__ import annotations

import json
import os
import select
import subprocess
from types import TracebackType
from typing import Any

from kit.vgpu_kit import Container, python


class Tenant:
    """One process of a container; ``ask`` sends a command and returns its answer."""

    def __init__(self, container: Container, device: int = 0, *, script: str = "holder.py", **more: str) -> None:
        self.process: subprocess.Popen[str] = container.start(*python(script, str(device)), **more)
        assert self._hear() == "ready"

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, command: str) -> Any:
        self._say(command)
        return self._hear()

    def report(self, command: str) -> None:
        """Its answer is to be heard later."""
        self._say(command)

    def has_answered(self) -> bool:
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def hear(self) -> Any:
        return self._hear()

    def kill(self) -> None:
        """Ends it at once; it is not reaped yet but a zombie, whose pid still answers."""
        self.process.kill()
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def end(self) -> str:
        """Ends it in good order; returns what it wrote to stderr."""
        if self.process.poll() is None:
            self._say("exit")
        _, err = self.process.communicate(timeout=60)
        return err

    def _say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, err = self.process.communicate(timeout=60)
            raise AssertionError(f"the child ended: {err}")
        return json.loads(line)

    def __enter__(self) -> Tenant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)
