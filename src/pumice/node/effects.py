"""What the node side wants done to the world. Plain data; ``apps`` performs it and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pumice.effects.vocabulary import Event
from pumice.wire.objects import Meta


@dataclass(frozen=True, slots=True)
class PatchPod:
    """Set annotations on one pod; ``uid`` keeps a pod of the same name that came later from being touched."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str | None]

    @classmethod
    def of(cls, pod: Meta, annotations: Mapping[str, str | None]) -> PatchPod:
        return cls(pod.namespace, pod.name, pod.uid, annotations)


@dataclass(frozen=True, slots=True)
class EndPod:
    """Have the kubelet end a pod for good, whatever its restart policy, as it does past a deadline: a foreign status that says
    Failed it takes back, and starts the containers anew (seen with 1.36). ``annotation`` and ``message`` say why on the pod."""

    namespace: str
    name: str
    uid: str
    annotation: str
    message: str

    @classmethod
    def of(cls, pod: Meta, annotation: str, message: str) -> EndPod:
        return cls(pod.namespace, pod.name, pod.uid, annotation, message)


@dataclass(frozen=True, slots=True)
class PatchNode:
    """Set or remove (None) annotations and labels of the own node; of that ``version`` alone, where one is given."""

    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Set or remove (None) extended resources in the own node's capacity and allocatable, and annotations with them."""

    resources: Mapping[str, str | None]
    annotations: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstallFile:
    """Write ``content`` under a name of its own in the same folder, sync it, and rename it to ``path``. ``keep``: not where
    something is there already. Not ``durable``: it is not synced, which takes longer than the kubelet should wait."""

    path: str
    content: bytes
    mode: int
    keep: bool = False
    durable: bool = True


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A directory on the host. ``fresh``: what was there before goes away first."""

    path: str
    mode: int = 0o1777
    fresh: bool = False


Effect = PatchPod | EndPod | PatchNode | PatchStatus | Event | MakeDirectory | InstallFile
