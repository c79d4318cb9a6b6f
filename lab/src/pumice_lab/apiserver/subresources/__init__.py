"""Subresources: parts of an object with verbs of their own, one module each."""

from __future__ import annotations

from collections.abc import Callable

from pumice_lab.apiserver.errors import method_not_allowed, no_such_path
from pumice_lab.apiserver.http_types import Response
from pumice_lab.apiserver.subresources import binding, kubelet, scale, token
from pumice_lab.apiserver.verbs import read, write
from pumice_lab.apiserver.verbs.context import Call

_ACTIONS: dict[str, Callable[[Call], Response]] = {
    "binding": binding.answer,
    "eviction": binding.evict,
    "finalize": token.finalize,
    "token": token.answer,
    "log": kubelet.answer,
    "exec": kubelet.answer,
    "attach": kubelet.answer,
    "portforward": kubelet.answer,
}
_WHOLE_OBJECT = ("status", "ephemeralcontainers", "resize", "approval")


def answer(call: Call) -> Response:
    kind, name = call.kind, call.target.subresource
    if name == "scale" and kind.scale is not None:
        return scale.answer(call)
    if name == "status" and not kind.status:
        raise no_such_path()
    if name in _WHOLE_OBJECT and (name == "status" or name in kind.subresources):
        return _whole_object(call, name)
    if name in kind.subresources and name in _ACTIONS:
        return _ACTIONS[name](call)
    raise no_such_path()


def _whole_object(call: Call, name: str) -> Response:
    """get, update and patch of the object through a narrower door."""
    match call.request.method:
        case "GET":
            return read.get(call)
        case "PUT":
            return write.update(call, name)
        case "PATCH":
            return write.patch(call, name)
    raise method_not_allowed(call.request.method)
