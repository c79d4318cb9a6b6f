"""Use of pods now, as the monitor of their node tells it: asked when somebody looks at the node, a card or a pod of it.

Through the API server, with the rights of whoever opened the page; on the machine of ``pumice up`` at the node's own address. A
monitor that hangs, lies or never ends costs its figures alone, and the page says why there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import islice
from typing import Any

import aiohttp
import msgspec

from pumice.adapters.scraping import page
from pumice.metrics.monitor import pod_uses
from pumice.model.errors import PumiceError, Unavailable
from pumice.node.history import POINTS, PodHistory
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.web.values import Use
from pumice.wire.kinds import NODES, PODS

NAMESPACE, LABEL, PORT = "kube-system", "name=volcano-vgpu-monitor", 9394
PATIENCE, LARGEST = 3.0, 8 << 20
"""Seconds and bytes for one page."""
SHARES_READ = 64
"""Of one pod."""
FRESH, KEPT, PODS_KEPT = 5.0, 64, 1000
"""For so many seconds an answer is fresh; so many nodes' answers are kept, of each so many pods."""

Stream = Callable[[str], Awaitable[Any]]
"""Opens a path of the API server as a long answer, which the reader may break off."""


@dataclass(frozen=True, slots=True)
class NodeUse:
    """By namespace/name of the pods of one node. ``unknown`` is why nothing is told; empty where something is."""

    at: float
    pods: Mapping[str, Use] = field(default_factory=dict)
    unknown: str = ""


@dataclass(slots=True)
class Monitors:
    """The monitors' pages. ``stream`` is None where the cluster has no such way."""

    cluster: Cluster
    clock: Clock
    stream: Stream | None = None
    direct: bool = False
    """Ask monitors at their pods' own addresses: from inside a cluster, where that needs no right to `pods/proxy`."""
    _known: dict[str, NodeUse] = field(default_factory=dict)
    _asking: dict[str, asyncio.Lock] = field(default_factory=dict)
    _hours: dict[tuple[str, str, str], tuple[float, tuple[PodHistory | None, str]]] = field(default_factory=dict)

    async def of_node(self, node: str) -> NodeUse:
        """Ask the node's monitor, at most once in a while however many look."""
        lock = self._asking.setdefault(node, asyncio.Lock())
        try:
            async with lock:
                known = self._known.get(node)
                if known is not None and self.clock.now() - known.at < FRESH:
                    return known
                found = await self._ask(node)
                self._known.pop(node, None)
                self._known[node] = found
                while len(self._known) > KEPT:
                    del self._known[next(iter(self._known))]
                return found
        finally:
            if not lock.locked():
                self._asking.pop(node, None)

    async def _ask(self, node: str) -> NodeUse:
        try:
            async with asyncio.timeout(PATIENCE * 2):
                text = await self._page(node)
            uses = pod_uses(text)
        except TimeoutError:
            return NodeUse(self.clock.now(), unknown=f"the monitor of {node} did not answer in time")
        except PumiceError as error:
            return NodeUse(self.clock.now(), unknown=str(error))
        some = islice(uses.items(), PODS_KEPT)
        told = {f"{namespace}/{pod}": Use(use.used, use.limit, use.cores) for (namespace, pod), use in some}
        return NodeUse(self.clock.now(), told)

    async def history(self, node: str, namespace: str, pod: str) -> tuple[PodHistory | None, str]:
        """The last hour of a pod, or why it is not known; asked at most once in a while. Namespace and pod are names of
        Kubernetes'."""
        key, now = (node, namespace, pod), self.clock.now()
        kept = self._hours.get(key)
        if kept is not None and now - kept[0] < FRESH:
            return kept[1]
        found = await self._history(node, namespace, pod)
        self._hours.pop(key, None)
        self._hours[key] = now, found
        while len(self._hours) > KEPT:
            del self._hours[next(iter(self._hours))]
        return found

    async def _history(self, node: str, namespace: str, pod: str) -> tuple[PodHistory | None, str]:
        try:
            async with asyncio.timeout(PATIENCE * 2):
                text = await self._page(node, f"history?namespace={namespace}&pod={pod}")
            found = msgspec.json.decode(text, type=PodHistory)
        except TimeoutError:
            return None, f"the monitor of {node} did not answer in time"
        except PumiceError as error:
            return None, str(error)
        except msgspec.MsgspecError as error:
            return None, f"the monitor of {node} says what is no history: {error}"
        wrong = len(found.shares) > SHARES_READ or any(
            len(line) > POINTS or any(value is not None and not 0 <= value < 2**63 for value in line)
            for share in found.shares for line in (share.memory, share.cores, [share.limit])
        )  # fmt: skip
        if wrong or not (0 < found.every < 3600 and 0 <= found.until < 2**40):
            return None, f"the monitor of {node} says what cannot be"
        return found, ""

    async def _page(self, node: str, what: str = "metrics") -> str:
        """Raises Unavailable and ApiError with the reason."""
        try:
            selector = f"spec.nodeName={node}"
            pods = (await self.cluster.list(PODS, NAMESPACE, label_selector=LABEL, field_selector=selector)).get("items") or []
        except ApiError as error:
            raise Unavailable(f"the pods of {NAMESPACE}, among which monitors are, could not be listed: {error}") from None
        own = str((pods[0].get("status") or {}).get("podIP", "")) if pods and self.direct else ""
        if own:
            return await page(f"http://{f'[{own}]' if ':' in own else own}:{PORT}/{what}", PATIENCE, LARGEST)
        if pods and self.direct:
            raise Unavailable(f"the monitor of {node} has no address yet")
        if pods and self.stream is not None:
            return await self._streamed(PODS.path(NAMESPACE, f"{pods[0]['metadata']['name']}:{PORT}", f"proxy/{what}"), node)
        if self.direct:
            raise Unavailable(f"no monitor runs on {node} (no pod in {NAMESPACE} with label {LABEL})")
        found = await self.cluster.get(NODES, node)
        addresses = (found.get("status") or {}).get("addresses") or []
        address = next((str(each.get("address")) for each in addresses if each.get("type") == "InternalIP"), "")
        if not _is_own(address):
            raise Unavailable(f"no monitor runs on {node} (no pod in {NAMESPACE} with label {LABEL})")
        return await page(f"http://{address}:{PORT}/{what}", PATIENCE, LARGEST)

    async def _streamed(self, path: str, node: str) -> str:
        assert self.stream is not None
        answer = await self.stream(path)
        body = bytearray()
        try:
            async with asyncio.timeout(PATIENCE):
                async for part in answer.content.iter_chunked(1 << 16):
                    body += part
                    if len(body) > LARGEST:
                        raise Unavailable(f"the monitor of {node} says more than {LARGEST} bytes")
        except TimeoutError:
            raise Unavailable(f"the monitor of {node} did not answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"the monitor of {node} broke off: {error}") from None
        finally:
            answer.close()
        return body.decode("utf-8", "replace")


def _is_own(address: str) -> bool:
    """Return whether this is an address of this machine alone, as nodes of `pumice up` have."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False
