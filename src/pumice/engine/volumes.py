"""PersistentVolumeClaims, volumes and storage classes, as far as placing pods needs them (spec volcano-core 11.8)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pumice.engine.selectors import Requirements, parse_node_term
from pumice.ports.cluster import Json


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim: the volume that it is bound to (empty: unbound) and its class."""

    key: str
    volume: str
    storage_class: str
    exists: bool = True


@dataclass(slots=True)
class Volumes:
    """What is known of storage. Everything is optional: a claim that is not known refuses its pod, nothing else."""

    claims: dict[str, Claim] = field(default_factory=dict)
    affinity: dict[str, tuple[Requirements | None, ...] | None] = field(default_factory=dict)
    """Volume name to its required node terms (None: any node)."""
    zones: dict[str, tuple[tuple[str, frozenset[str]], ...]] = field(default_factory=dict)
    immediate: dict[str, bool] = field(default_factory=dict)
    """Storage class name to whether its claims must be bound before scheduling."""
    version: int = 0

    def put_claim(self, obj: Json) -> None:
        meta, spec = obj.get("metadata", {}), obj.get("spec", {})
        key = f"{meta.get('namespace', '')}/{meta.get('name', '')}"
        self.claims[key] = Claim(key, str(spec.get("volumeName") or ""), str(spec.get("storageClassName") or ""))
        self.version += 1

    def drop_claim(self, obj: Json) -> None:
        meta = obj.get("metadata", {})
        self.claims.pop(f"{meta.get('namespace', '')}/{meta.get('name', '')}", None)
        self.version += 1

    def put_volume(self, obj: Json) -> None:
        meta, spec = obj.get("metadata", {}), obj.get("spec", {})
        name = str(meta.get("name", ""))
        required: Any = (spec.get("nodeAffinity") or {}).get("required")
        terms = (required or {}).get("nodeSelectorTerms") or ()
        self.affinity[name] = tuple(parse_node_term(t) for t in terms) if required else None
        labels = meta.get("labels") or {}
        self.zones[name] = tuple(
            (key, frozenset(str(labels[key]).split("__")))
            for key in ("topology.kubernetes.io/zone", "topology.kubernetes.io/region",
                        "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region")
            if key in labels
        )  # fmt: skip
        self.version += 1

    def drop_volume(self, obj: Json) -> None:
        name = str(obj.get("metadata", {}).get("name", ""))
        self.affinity.pop(name, None)
        self.zones.pop(name, None)
        self.version += 1

    def put_class(self, obj: Json) -> None:
        name = str(obj.get("metadata", {}).get("name", ""))
        self.immediate[name] = obj.get("volumeBindingMode", "Immediate") != "WaitForFirstConsumer"
        self.version += 1

    def drop_class(self, obj: Json) -> None:
        self.immediate.pop(str(obj.get("metadata", {}).get("name", "")), None)
        self.version += 1
