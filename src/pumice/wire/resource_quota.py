"""ResourceQuotas: what the pods of a namespace may ask for together."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from pumice.wire.objects import Meta, Quantities


class ResourceQuotaSpec(Struct, rename="camel", gc=False):
    hard: Quantities = {}
    scopes: list[str] = []
    scope_selector: dict[str, object] = {}


class ResourceQuotaStatus(Struct, rename="camel", gc=False):
    hard: Quantities = {}
    used: Quantities = {}


class ResourceQuota(Struct, rename="camel", gc=False):
    metadata: Meta = msgspec.field(default_factory=Meta)
    spec: ResourceQuotaSpec = msgspec.field(default_factory=ResourceQuotaSpec)
    status: ResourceQuotaStatus = msgspec.field(default_factory=ResourceQuotaStatus)

    @property
    def scoped(self) -> bool:
        """True if it holds for some pods only: which ones a group will have is not known before they are made."""
        return bool(self.spec.scopes or self.spec.scope_selector)


PREFIX = "requests."


def asked_for(hard_name: str) -> str:
    """The resource that a name in a quota is about: ``requests.cpu`` and ``cpu`` are one."""
    return hard_name.removeprefix(PREFIX)
