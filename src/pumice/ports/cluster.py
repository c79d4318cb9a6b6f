"""The Kubernetes API as our daemons use it: one small client and list-and-watch.

Objects travel as raw JSON bytes or plain dicts here; ``wire`` decodes the slice of fields that is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from pumice.model.errors import PumiceError

Json = dict[str, Any]
T = TypeVar("T")
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "SYNCED"]


class ApiError(PumiceError):
    """The API server refused. ``code`` is the HTTP status (0: no answer), ``reason`` the Status reason."""

    def __init__(self, code: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after


@dataclass(frozen=True, slots=True)
class Resource:
    """The address of a kind: ``Resource("", "v1", "pods")``, ``Resource("apps", "v1", "deployments")``."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        tail = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{tail}"


class WatchEvent(Struct, frozen=True, gc=False):
    """One change. ``SYNCED`` carries no object and follows the last object of each complete (re)list.

    After a relist the listed objects come as ADDED or MODIFIED, and vanished ones as DELETED with their metadata only
    (name, namespace, uid); whoever has taken the name of a vanished object comes after that one's DELETED. ``obj`` is the
    decoded object where the watch was told its kind and could decode it as that; ``raw`` is empty then. ``listed``: told by a
    list, whose order says nothing.
    """

    type: EventType
    raw: bytes
    obj: Any = None
    listed: bool = False


class Cluster(Protocol):
    """A client of one API server. Every call raises ApiError on refusal; a timeout is ApiError(0, "Timeout", …)."""

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json: ...
    async def list(self, resource: Resource, namespace: str = "", *, label_selector: str = "",
                   field_selector: str = "") -> Json: ...
    async def create(self, resource: Resource, obj: Json, namespace: str = "", *, subresource: str = "",
                     name: str = "") -> Json: ...
    async def create_as(self, resource: Resource, obj: Json, namespace: str, kind: type[T]) -> T:
        """The same; of the answer only what the kind (a msgspec Struct) names is read."""
        ...

    async def update(self, resource: Resource, obj: Json, *, subresource: str = "") -> Json: ...
    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "", *, subresource: str = "",
                    kind: Literal["merge", "json", "strategic", "apply"] = "merge",
                    params: Mapping[str, str] | None = None) -> Json: ...
    async def patch_as(self, resource: Resource, name: str, body: Json, namespace: str, kind: type[T], *,
                       subresource: str = "") -> T:
        """A merge patch; of the answer only what the kind names is read."""
        ...

    async def delete(self, resource: Resource, name: str, namespace: str = "", *, grace: int | None = None,
                     uid: str = "", propagation: str = "") -> Json: ...
    async def delete_collection(self, resource: Resource, namespace: str, *, label_selector: str) -> Json:
        """Delete all that the selector chooses; they are the ``items`` of the answer."""
        ...

    async def bind(self, namespace: str, name: str, body: bytes) -> None:
        """POST a ready Binding (the hot path: bytes in, nothing out)."""
        ...

    def watch(self, resource: Resource, namespace: str = "", *, label_selector: str = "",
              field_selector: str = "", kind: type[Any] | None = None) -> AsyncIterator[WatchEvent]:
        """List, then watch for ever: reconnects with backoff, resumes, relists after 410. ``kind`` is a msgspec Struct with
        a ``metadata`` (wire.objects): then objects come decoded, which spares large lists two readings of every byte."""
        ...
