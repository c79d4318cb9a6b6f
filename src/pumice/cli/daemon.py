"""The common part of the daemons' commands: flags, credentials, signals, one line for an error. What a daemon needs to run is
imported when it runs: its help and its completion need none of it.

The cluster of ``pumice up``: where it lies, whether it runs, and the option of the commands that ask for it.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pumice.adapters.regular_files import try_lock
from pumice.cli import flags
from pumice.model.errors import BadInput
from pumice.wire import variables
from pumice.wire.names import SCHEDULER_NAME
from pumice.wire.quantity import parse_duration
from pumice.wire.times import stamp

if TYPE_CHECKING:
    from pumice.adapters.kube import Access

LINE = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": stamp(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def log_to(path: Path | None = None, *, level: int = logging.INFO, as_json: bool = False) -> None:
    """Log to a file, or to stderr. What others than we say is logged from warnings up."""
    handler = logging.StreamHandler(sys.stderr) if path is None else logging.FileHandler(path)
    handler.setFormatter(JsonFormatter() if as_json else LINE)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("pumice").setLevel(level)


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


def setup_logging(log_format: LogFormat, level: str = "", verbosity: int = 3) -> None:
    """Log to stderr from ``level`` up; where that is empty, ``verbosity`` counts as upstream's -v does. Raises BadInput."""

    number = logging.DEBUG if verbosity >= 4 else logging.INFO if verbosity >= 1 else logging.WARNING
    if level:
        found = getattr(logging, level.upper(), None)
        if not isinstance(found, int):
            raise BadInput(f"--log-level {level!r}: use debug, info, warning or error")
        number = found
    log_to(level=number, as_json=log_format is LogFormat.JSON)


def duration(flag: str, text: str) -> float:
    """Seconds of a Go duration such as ``1h2m3s`` or ``500ms``. Raises BadInput that names the flag."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadInput(f"{flag}: {error}") from None


Kubeconfig = Annotated[
    Path | None,
    flags.Option(envvar="KUBECONFIG", help="Kubeconfig file; without one the pod's service account is used."),
]
LogLevel = Annotated[
    str,
    flags.Option("--log-level", envvar=variables.LOG, help="debug, info, warning or error; default: info, or as -v says."),
]
LogAs = Annotated[LogFormat, flags.Option("--log-format", help="How to log.")]
Verbosity = Annotated[int, flags.Option("-v", "--v", help="Log level; 4 and more is debug.")]
SchedulerNames = Annotated[list[str] | None, flags.Option("--scheduler-name", help="Pods with this schedulerName are ours.")]
Listen = Annotated[str, flags.Option("--listen-address", help="Address of /metrics, /healthz and /readyz.")]
LeaderElect = Annotated[bool, flags.Option(help="Run only while holding the Lease.")]


def scheduler_names(given: list[str] | None) -> tuple[str, ...]:
    """Raises BadInput on an empty one."""
    names = tuple(given or [SCHEDULER_NAME])
    if not all(names):
        raise BadInput(f"--scheduler-name is empty; leave it out for {SCHEDULER_NAME!r}")
    return names


def run_daemon(
    run: Callable[..., Coroutine[Any, Any, None]], settings: Any, kubeconfig: Path | None, name: str, connections: int = 32
) -> None:
    """Run one daemon until SIGINT, SIGTERM or SIGQUIT. Raises PumiceError on what a person has to mend."""
    import asyncio
    import random

    from pumice.adapters.kube import KubeClient
    from pumice.apps.service.stopping import told_to_stop
    from pumice.ports.clock import SystemClock

    access = find_access(kubeconfig)

    async def serve() -> None:
        stop = told_to_stop(signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
        if (hangup := getattr(settings, "hangup", None)) is not None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
        async with KubeClient(access, connections=connections, user_agent=name) as kube:
            await run(settings, cluster=kube, clock=SystemClock(), rng=random.Random(), stop=stop)

    asyncio.run(serve())
    logging.getLogger("pumice").info("%s has stopped", name)


def find_access(kubeconfig: Path | None) -> Access:
    """A kubeconfig when one is given or in its usual place, else the service account of the pod we run in."""
    from pumice.adapters.kube import in_cluster, load_kubeconfig

    if kubeconfig is not None or "KUBERNETES_SERVICE_HOST" not in os.environ:
        return load_kubeconfig(kubeconfig or "")
    return in_cluster()


def access_to_ask(kubeconfig: Path | None) -> Access:
    """The same for a command that asks: where no kubeconfig is named, nor lies in its usual place, this machine's own cluster."""

    own = kubeconfig_of(default_data_dir())
    named = kubeconfig is not None or os.environ.get("KUBECONFIG") or "KUBERNETES_SERVICE_HOST" in os.environ
    if not named and own.exists() and not (Path.home() / ".kube" / "config").exists():
        return find_access(own)
    return find_access(kubeconfig)


def node_name(given: str) -> str:
    """The node's name. Raises BadInput when nobody said it."""
    if not given:
        raise BadInput("no --node-name and no NODE_NAME in the environment (the manifests take it from the downward API)")
    return given


def bind_address(text: str, flag: str) -> tuple[str, int]:
    """Address and port of ``ADDRESS:PORT``. Raises BadInput that names the flag."""
    from pumice.apps.service.http import any_address

    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise BadInput(f"{flag} {text!r}: write ADDRESS:PORT, for example 0.0.0.0:9394 or :9394")
    return host.strip("[]") or any_address(), int(port)


def default_data_dir() -> Path:
    """Return the data dir of who names none."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "pumice" / "cluster"


def kubeconfig_of(data_dir: Path) -> Path:
    return data_dir / "kubeconfig"


def lock_of(data_dir: Path) -> Path:
    return data_dir / "lock"


def is_held(data_dir: Path) -> bool:
    """True while some process holds the data dir: a cluster runs or starts there."""
    try:
        lock = os.open(lock_of(data_dir), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(lock)
    finally:
        os.close(lock)


def shown_default() -> str:
    """The default as a person writes it."""
    path, home = default_data_dir(), Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


DATA_DIR = Annotated[Path | None, flags.Option(help="The data dir given to `pumice up`.", show_default=shown_default())]
