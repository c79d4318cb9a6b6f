"""Server-side apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pumice.cluster.apiserver.errors import unsupported_media_type

if TYPE_CHECKING:
    from pumice.cluster.apiserver.objects import Objects, WriteOptions
    from pumice.cluster.apiserver.registry import Kind

Json = dict[str, Any]


def apply(objects: Objects, kind: Kind, namespace: str, name: str, body: Json, options: WriteOptions, subresource: str,
          force: bool) -> tuple[Json, bool]:
    raise unsupported_media_type("later")
