"""pods/log, exec, attach and portforward: answered by the kubelet of the pod's node, through a tunnel."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from pumice_lab.apiserver.errors import (
    ApiFailure,
    bad_request,
    forbidden_value,
    invalid,
    invalid_value,
    method_not_allowed,
)
from pumice_lab.apiserver.http_types import Response, Tunnel
from pumice_lab.apiserver.verbs.context import Call

Json = dict[str, Any]

_LOG_OPTIONS = ("follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream")
_STREAM_OPTIONS = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_ADDRESSES = ("InternalIP", "Hostname", "ExternalIP")


def answer(call: Call) -> Response:
    target, request = call.target, call.request
    if request.method not in (("GET",) if target.subresource == "log" else ("GET", "POST")):
        raise method_not_allowed(request.method)
    if target.subresource == "log":
        _check_log_options(call)
    pod = call.objects.stored(call.kind, target.namespace, target.name).value()
    container = "" if target.subresource == "portforward" else _container(pod, request.param("container"))
    node = pod["spec"].get("nodeName", "")
    if not node:
        if target.subresource == "log":
            return Response(200, content_type="text/plain")
        raise bad_request(f"pod {target.name} does not have a host assigned")
    path, query = _kubelet_path(call, container)
    url = f"{node_url(call, node)}{path}" + (f"?{urlencode(query)}" if query else "")
    return Response(200, tunnel=Tunnel(url, node))


def _check_log_options(call: Call) -> None:
    number, problems = call.request.number, []
    if (tail := number("tailLines")) is not None and tail < 0:
        problems.append(invalid_value("tailLines", tail, "must be greater than or equal to 0"))
    for name in ("limitBytes", "sinceSeconds"):
        if (asked := number(name)) is not None and asked < 1:
            problems.append(invalid_value(name, asked, "must be greater than 0"))
    if call.request.param("sinceSeconds") and call.request.param("sinceTime"):
        problems.append(forbidden_value("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if problems:
        raise invalid("", "PodLogOptions", call.target.name, problems)


def _container(pod: Json, asked: str) -> str:
    spec = pod["spec"]
    known = [
        c["name"] for field in ("containers", "initContainers", "ephemeralContainers") for c in spec.get(field) or []
    ]
    if asked:
        if asked not in known:
            raise bad_request(f"container {asked} is not valid for pod {pod['metadata']['name']}")
        return asked
    containers = [c["name"] for c in spec["containers"]]
    default = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    if default in containers:
        return str(default)
    if len(containers) > 1:
        raise bad_request(f"a container name must be specified for pod {pod['metadata']['name']}, "
                          f"choose one of: [{' '.join(containers)}]")  # fmt: skip
    return str(containers[0])


def _kubelet_path(call: Call, container: str) -> tuple[str, list[tuple[str, str]]]:
    """The kubelet's own path and query for what was asked of the API server."""
    request, target = call.request, call.target
    where = f"/{quote(target.namespace)}/{quote(target.name)}"
    if target.subresource == "log":
        query = [(name, request.param(name)) for name in _LOG_OPTIONS if name in request.query]
        return f"/containerLogs{where}/{quote(container)}", query
    if target.subresource == "portforward":
        return f"/portForward{where}", [("port", port) for port in request.query.get("ports", [])]
    query = [(name, "1") for asked, name in _STREAM_OPTIONS.items() if request.flag(asked)]
    query += [("command", word) for word in request.query.get("command", [])]
    return f"/{target.subresource}{where}/{quote(container)}", query


def node_url(call: Call, name: str) -> str:
    """``https://ADDRESS:PORT`` from the node's status. Raises 500 when the node says neither, as kube-apiserver does."""
    node = call.backend.read("v1/nodes", "", name)
    status = (node or {}).get("status") or {}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port")
    addresses = {a.get("type"): a.get("address") for a in status.get("addresses") or []}
    address = next((addresses[kind] for kind in _ADDRESSES if addresses.get(kind)), None)
    if not port or not address:
        why = "is not registered" if node is None else "has no kubelet endpoint in its status"
        raise ApiFailure(500, "InternalError", f"node {name} {why}: its kubelet cannot be reached")
    # Ours says which scheme it speaks; a real kubelet is https.
    scheme = ((node or {})["metadata"].get("annotations") or {}).get("pumice.io/kubelet-scheme", "https")
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{port}"
