"""The names by which pods find each other: /etc/hosts of each container, kept up to date.

As in the DNS specification of Kubernetes (dns/specification.md, 2.4 headless Services): ``<hostname>.<subdomain>`` is a pod,
``<subdomain>`` all pods of it, both also with ``.<namespace>.svc.cluster.local``. No Service is asked for these: the pods
say it themselves, and ``hostname`` and ``subdomain`` are what a Job's plugin svc gives them. Names of pods of other namespaces
are not there. Services are told from outside (service_proxy.py), those of all namespaces.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice_lab.network.services import ServiceName, forms, host_lines, links

SOONEST = 0.05
_SHARE = 0.05  # of one processor, at most, for writing: a Job of a thousand pods has a thousand files of a thousand lines
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Named:
    namespace: str
    host: str
    subdomain: str
    address: str


@dataclass(frozen=True, slots=True)
class _File:
    namespace: str
    path: Path
    head: str


class PodNames:
    """One for all nodes of a cluster. Lives in one event loop."""

    def __init__(self) -> None:
        self._pods: dict[str, Named] = {}
        self._services: tuple[ServiceName, ...] = ()
        self._files: dict[str, _File] = {}
        self._changed: set[str] = set()
        self._pause = SOONEST
        self._timer: asyncio.TimerHandle | None = None

    def add(self, pod: Json, host: str, address: str) -> None:
        meta, subdomain = pod["metadata"], pod["spec"].get("subdomain")
        if subdomain:
            self._pods[meta["uid"]] = Named(meta.get("namespace", "default"), host, subdomain, address)
            self._tell(meta.get("namespace", "default"))

    def remove(self, uid: str) -> None:
        self._files.pop(uid, None)
        if gone := self._pods.pop(uid, None):
            self._tell(gone.namespace)

    def follow(self, uid: str, namespace: str, path: Path, head: str) -> None:
        """Write the file ``path`` of a pod now, and again whenever somebody comes or goes, until the pod is removed."""
        self._files[uid] = _File(namespace, path, head)
        path.parent.mkdir(parents=True, exist_ok=True)
        _overwrite(path, head + self._others(namespace))

    def serve(self, services: Iterable[ServiceName]) -> None:
        """These are the cluster's Services from now on."""
        before, self._services = self._services, tuple(services)
        for namespace in {file.namespace for file in self._files.values()} if self._services != before else ():
            self._tell(namespace)

    def links(self, namespace: str) -> dict[str, str]:
        return links(self._services, namespace)

    def _others(self, namespace: str) -> str:
        pods = hosts_lines([pod for pod in self._pods.values() if pod.namespace == namespace])
        services = host_lines(self._services, namespace).splitlines(keepends=True)
        return pods + "".join(line for line in services if line not in pods)  # a headless Service's pods often say it themselves

    def _tell(self, namespace: str) -> None:
        self._changed.add(namespace)
        if self._timer is None and self._files:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._begin)

    def _begin(self) -> None:
        lines = {namespace: self._others(namespace) for namespace in self._changed}
        work = [(file.path, file.head + lines[file.namespace]) for file in self._files.values() if file.namespace in lines]
        self._changed.clear()
        asyncio.get_running_loop().run_in_executor(None, _overwrite_all, work).add_done_callback(self._written)

    def _written(self, done: asyncio.Future[float]) -> None:
        self._timer = None
        if done.cancelled() or done.exception():
            return
        self._pause = max(SOONEST, done.result() / _SHARE)
        if self._changed:
            self._tell(self._changed.pop())


def hosts_lines(pods: list[Named]) -> str:
    """The lines of /etc/hosts for pods of one namespace."""
    lines = []
    for pod in sorted(pods, key=lambda pod: (pod.subdomain, pod.host)):
        lines.append(f"{pod.address}\t{forms(f'{pod.host}.{pod.subdomain}', pod.namespace)}")
        lines.append(f"{pod.address}\t{forms(pod.subdomain, pod.namespace)}")
    return "".join(f"{line}\n" for line in lines)


def _overwrite_all(work: list[tuple[Path, str]]) -> float:
    """Returns how many seconds it took."""
    began = time.monotonic()
    for path, text in work:
        if path.exists():  # else the pod is gone by now
            _overwrite(path, text)
    return time.monotonic() - began


def _overwrite(path: Path, text: str) -> None:
    """In place, for a container has this very file mounted; the new text first, so that a reader finds no empty file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        content = text.encode()
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))
    finally:
        os.close(descriptor)
