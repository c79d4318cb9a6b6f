"""metrics.k8s.io: what nodes and pods use, asked of their kubelets at that moment; ``kubectl top`` shows it.

The form is that of Kubernetes' "Resource metrics pipeline"; the kubelets tell it in their ``/stats/summary``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

from pumice_lab.apiserver.errors import ApiFailure, method_not_allowed, not_found
from pumice_lab.apiserver.http_types import Response, Tunnel, reply
from pumice_lab.apiserver.subresources.kubelet import node_url
from pumice_lab.apiserver.verbs.context import Call
from pumice_lab.apiserver.verbs.read import Filter

Json = dict[str, Any]
GROUP = "metrics.k8s.io"
_WINDOW = "1s"
_UNREADABLE = (msgspec.DecodeError, RecursionError)
log = logging.getLogger("pumice.cluster.apiserver.usage")


class _Cpu(msgspec.Struct):
    time: str
    cores: int = msgspec.field(name="usageNanoCores", default=0)


class _Memory(msgspec.Struct):
    bytes: int = msgspec.field(name="workingSetBytes", default=0)


class _Used(msgspec.Struct):
    cpu: _Cpu
    memory: _Memory
    name: str = ""


class _Reference(msgspec.Struct):
    name: str
    namespace: str


class _Pod(msgspec.Struct):
    ref: _Reference = msgspec.field(name="podRef")
    containers: list[_Used]


class _OfNode(msgspec.Struct):
    node: _Used


class _OfPods(msgspec.Struct):
    pods: list[msgspec.Raw]


def answer(call: Call) -> Response:
    """Asks the kubelets that may know. Raises NotFound for a node that there is not."""
    target, request = call.target, call.request
    if request.method != "GET" or target.watch or request.flag("watch") or target.subresource:
        raise method_not_allowed(request.method if request.method != "GET" else "watch")
    Filter(call)  # a selector that nobody can obey is refused before anybody is asked
    if call.kind.plural == "nodes" and target.name:
        nodes = [call.backend.storage.get("v1/nodes", "", target.name)]
        if nodes[0] is None:
            raise not_found(GROUP, "nodes", target.name)
    else:
        nodes = list(call.backend.storage.objects("v1/nodes"))
    return Response(gathered=(tuple(_ways(call, [node.name for node in nodes if node])), lambda answers: _joined(call, answers)))


def _ways(call: Call, names: Iterable[str]) -> Iterator[Tunnel]:
    for name in names:
        try:
            yield Tunnel(f"{node_url(call, name)}/stats/summary", name)
        except ApiFailure:
            continue  # a node of which nobody runs a kubelet


def _joined(call: Call, answers: list[tuple[str, bytes]]) -> Response:
    """Return the figures in the answers of the nodes that gave one: of themselves, and of pods that are theirs."""
    kind, name, wanted = call.kind, call.target.name, Filter(call)
    chosen = []
    for node, body in answers:
        for item in _node(node, body) if kind.plural == "nodes" else _pods(node, body):
            metadata = item["metadata"]
            stored = call.backend.storage.get(f"v1/{kind.plural}", metadata.get("namespace", ""), metadata["name"])
            if stored is None or not wanted(stored) or stored.index[1].get("spec.nodeName", node) != node:
                continue
            about = {**metadata, "labels": dict(stored.index[0]), "creationTimestamp": item["timestamp"]}
            chosen.append({**item, "metadata": about})
    chosen.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    if not name:
        return reply({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}, "items": chosen})
    if not chosen:
        raise not_found(GROUP, kind.plural, name)
    return reply({"kind": kind.kind, "apiVersion": kind.api_version, **chosen[0]})


def _node(node: str, body: bytes) -> Iterator[Json]:
    with suppress(*_UNREADABLE):
        reported = msgspec.json.decode(body, type=_OfNode).node
        yield {"metadata": {"name": node}, "timestamp": reported.cpu.time, "window": _WINDOW, "usage": _usage(reported)}


def _pods(node: str, body: bytes) -> Iterator[Json]:
    """A pod of which something is missing, as of one that has just begun, is left out alone."""
    try:
        reported = msgspec.json.decode(body, type=_OfPods).pods
    except _UNREADABLE as problem:
        log.debug("no summary node=%s cause=%s", node, problem)
        return
    for raw in reported:
        with suppress(*_UNREADABLE):
            pod = msgspec.json.decode(raw, type=_Pod)
            if pod.containers:
                yield {
                    "metadata": {"name": pod.ref.name, "namespace": pod.ref.namespace}, "window": _WINDOW,
                    "timestamp": pod.containers[0].cpu.time,
                    "containers": [{"name": c.name, "usage": _usage(c)} for c in pod.containers],
                }  # fmt: skip


def _usage(reported: _Used) -> Json:
    return {"cpu": f"{reported.cpu.cores}n", "memory": f"{reported.memory.bytes // 1024}Ki"}
