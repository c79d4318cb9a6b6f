"""The data dir of one cluster: who holds it, where things lie, and what a second process may know of it.

    D/kubeconfig  D/cluster.json  D/web-token  D/lock  D/api/  D/pki/  D/logs/  D/nodes/NAME/
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.adapters.regular_files import replace_file, try_lock
from pumice.cli.daemon import is_held, kubeconfig_of, lock_of
from pumice.cli.page_link import FACTS, TOKEN
from pumice.model.errors import BadInput


@dataclass(frozen=True, slots=True)
class DataDir:
    root: Path

    @property
    def kubeconfig(self) -> Path:
        return kubeconfig_of(self.root)

    @property
    def facts_file(self) -> Path:
        return self.root / FACTS

    @property
    def web_token(self) -> Path:
        """The token of the page in the browser, for the owner alone: `cluster.json` is read by everybody."""
        return self.root / TOKEN

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def database(self) -> Path:
        return self.root / "api" / "state.db"

    def node(self, name: str) -> Path:
        return self.root / "nodes" / name

    def address(self, index: int) -> str:
        """A loopback address of this cluster's own: index 0 is the control plane, 1 and up its nodes.

        127.64.0.0/10 is divided by the path of the data dir, so that clusters side by side rarely meet; where they do,
        a taken port is replaced by a free one.
        """
        path = str(self.root).encode()
        base = (64 + zlib.crc32(path) % 64) << 16 | (zlib.crc32(b"/" + path) % 64) << 10
        host = base + index + 1
        return f"127.{host >> 16}.{host >> 8 & 255}.{host & 255}"

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Make the data dir ours while the context lasts.

        Raises BadInput when it cannot be written or another running cluster holds it.
        """
        try:
            for directory in (self.root, self.logs, self.database.parent):
                directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(lock_of(self.root), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadInput(f"data dir {self.root}: {error.strerror}; name another with --data-dir") from error
        try:
            if not try_lock(lock):
                pid = (self.facts() or {}).get("pid", "?")
                raise BadInput(f"data dir {self.root} belongs to a running cluster (pid {pid}); "
                               "stop it with `pumice down` or name another with --data-dir")
            self._forget_the_last_holder()
            yield
        finally:
            os.close(lock)

    def _forget_the_last_holder(self) -> None:
        """One that was killed left its pid here, which may be anybody's by now: `pumice down` would end that."""
        facts = self.facts() or {}
        if "pid" in facts:
            del facts["pid"]
            try:
                self.write_facts(facts)
            except OSError as error:
                raise BadInput(f"data dir {self.root}: {error.strerror}; name another with --data-dir") from error

    def running(self) -> bool:
        """True while some process holds the data dir."""
        return is_held(self.root)

    def facts(self) -> dict[str, Any] | None:
        """Return the facts that the running cluster wrote about itself (pid, server, addresses), or None."""
        try:
            facts = json.loads(self.facts_file.read_text())
        except (OSError, ValueError):
            return None
        return facts if isinstance(facts, dict) else None

    def write_facts(self, facts: dict[str, Any]) -> None:
        replace_file(self.facts_file, f"{json.dumps(facts, indent=2)}\n".encode(), 0o644, durable=False)


# -- The state of the scheduler of a cluster of this machine, from its pages ----------------------------------------


def scheduler_problem(facts: dict[str, Any], patience: float = 5.0) -> str:
    """Return the problem that the scheduler reports of itself: why it is not ready, or that its configuration is refused."""
    if "scheduler" not in facts:
        return ""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(f"http://{facts['scheduler']}/readyz", timeout=patience) as answer:
            lines = answer.read().decode("utf-8", "replace").splitlines()
        return "; ".join(lines[1:])
    except HTTPError as refusal:
        return f"it places nothing, {refusal.read().decode('utf-8', 'replace')}"
    except (OSError, ValueError) as error:
        return f"it does not answer: {error}"
