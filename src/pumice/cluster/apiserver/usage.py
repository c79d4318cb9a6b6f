"""metrics.k8s.io: what nodes and pods use, asked of their kubelets at that moment; ``kubectl top`` shows it.

The form is that of Kubernetes' "Resource metrics pipeline"; the kubelets tell it in their ``/stats/summary``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pumice.cluster.apiserver.errors import ApiFailure, method_not_allowed, not_found
from pumice.cluster.apiserver.http_types import Response, Tunnel, reply
from pumice.cluster.apiserver.selectors import label_selector
from pumice.cluster.apiserver.subresources.kubelet import node_url
from pumice.cluster.apiserver.verbs.context import Call

Json = dict[str, Any]
GROUP = "metrics.k8s.io"
_WINDOW = "1s"


def answer(call: Call) -> Response:
    """Asks the kubelets that may know. Raises NotFound for a node that there is not."""
    target, request = call.target, call.request
    if request.method != "GET" or target.watch or request.flag("watch") or target.subresource:
        raise method_not_allowed(request.method if request.method != "GET" else "watch")
    if call.kind.plural == "nodes" and target.name:
        nodes = [call.backend.storage.get("v1/nodes", "", target.name)]
        if nodes[0] is None:
            raise not_found(GROUP, "nodes", target.name)
    else:
        nodes = list(call.backend.storage.objects("v1/nodes"))
    return Response(gathered=(tuple(_ways(call, [node.name for node in nodes if node])), lambda bodies: _joined(call, bodies)))


def _ways(call: Call, names: Iterable[str]) -> Iterator[Tunnel]:
    for name in names:
        try:
            yield Tunnel(f"{node_url(call, name)}/stats/summary", name)
        except ApiFailure:
            continue  # a node of which nobody runs a kubelet


def _joined(call: Call, bodies: list[bytes]) -> Response:
    """What those that answered have said."""
    kind, name = call.kind, call.target.name
    summaries = [msgspec.json.decode(body) for body in bodies]
    items = [_node(s["node"]) for s in summaries] if kind.plural == "nodes" else [
        _pod(pod) for s in summaries for pod in s["pods"] if pod["containers"]]  # fmt: skip
    wanted = label_selector(call.request.param("labelSelector"))
    chosen = []
    for item in items:
        metadata = item["metadata"]
        stored = call.backend.storage.get(f"v1/{kind.plural}", metadata.get("namespace", ""), metadata["name"])
        here = call.target.namespace in ("", metadata.get("namespace", ""))
        if stored is not None and here and name in ("", stored.name) and (wanted is None or wanted(stored.index[0])):
            about = {**metadata, "labels": dict(stored.index[0]), "creationTimestamp": item["timestamp"]}
            chosen.append({**item, "metadata": about})
    chosen.sort(key=lambda item: (item["metadata"].get("namespace", ""), item["metadata"]["name"]))
    if not name:
        return reply({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": {}, "items": chosen})
    if not chosen:
        raise not_found(GROUP, kind.plural, name)
    return reply({"kind": kind.kind, "apiVersion": kind.api_version, **chosen[0]})


def _node(told: Json) -> Json:
    return {"metadata": {"name": told["nodeName"]}, "timestamp": told["cpu"]["time"], "window": _WINDOW, "usage": _usage(told)}


def _pod(told: Json) -> Json:
    reference, containers = told["podRef"], told["containers"]
    return {
        "metadata": {"name": reference["name"], "namespace": reference["namespace"]}, "window": _WINDOW,
        "timestamp": containers[0]["cpu"]["time"], "containers": [{"name": c["name"], "usage": _usage(c)} for c in containers],
    }  # fmt: skip


def _usage(told: Json) -> Json:
    return {"cpu": f"{told['cpu'].get('usageNanoCores', 0)}n", "memory": f"{told['memory'].get('workingSetBytes', 0) // 1024}Ki"}
