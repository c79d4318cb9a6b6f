"""What placed pods' objects say of the cards that they hold, kept for as long as they are there; and what their node's plugin
says of it.

A node's cards may be registered late or anew, and the families may change: then the pods are read again. Most of tens of
thousands of pods are written alike but for name, labels and annotations, so all the rest is kept once.
"""

from __future__ import annotations

from collections.abc import Hashable

from pumice.engine.state.classes import Kind
from pumice.engine.state.features import Features
from pumice.wire import kubernetes, names
from pumice.wire.handed_out import handed_to
from pumice.wire.objects import Container, Meta, Pod, PodSpec, PodStatus, is_admitted, is_mirror

NAMES_KEPT = 4096
"""Sets of annotation names, and containers, that are recognised; what is in use lives on with its pods."""

UNREAD = frozenset((
    names.DEVICES_TO_ALLOCATE, names.VGPU_TIME, names.BIND_PHASE, names.BIND_TIME, names.PREDICATE_TIME,
))  # fmt: skip
"""Annotations of ours that repeat others or tell the time."""
FOREIGN = (kubernetes.DOMAIN, "cncf.io", "projectcalico.org", "prometheus.io", "istio.io", "linkerd.io")
"""Domains (and all below them) that say nothing of cards; some of their annotations are long."""

Kept = tuple[PodSpec, Features, str, tuple[str, ...], tuple[str, ...], bool]
_ADMITTED, _AWAITED = PodStatus("Running"), PodStatus("Pending")


class AssignmentCache:
    """Per pod its containers and labels (shared with pods that have the same), its name, the names and values of its
    annotations, and whether the kubelet has admitted it; per node what its plugin has handed out, as it wrote it."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._specs: dict[Hashable, PodSpec] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Names of all annotations of a pod to those that are read."""
        self._handed: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, uid: str, name: str, pod: Pod, kind: Kind) -> bool:
        """Keep what the pod tells; False when it says nothing of cards: that it was admitted, and asks, is something."""
        notes, node, admitted = pod.metadata.annotations, pod.spec.node_name, is_admitted(pod)
        if not kind.asks_cards or is_mirror(pod) or not (notes or admitted):
            return False
        every = tuple(notes)
        read = self._names.get(every)
        if read is None:
            if len(self._names) > NAMES_KEPT:
                self._names.clear()
            read = self._names[every] = tuple([key for key in every if _is_read(key)])
        if not (read or admitted):
            return False
        values = tuple([value if (value := notes[key]) != node else node for key in read])
        self._kept[uid] = self._spec(pod.spec, kind), kind.features, name, read, values, admitted
        return True

    def drop(self, uid: str) -> None:
        self._kept.pop(uid, None)

    def tidy(self) -> None:
        """Give back the room of what was dropped."""
        self._kept = dict(self._kept)

    def pod(self, uid: str, node: str) -> Pod | None:
        """The pod as far as it tells which cards of that node it holds; None when it holds none."""
        found = self._kept.get(uid)
        if found is None:
            return None
        spec, features, name, keys, values, admitted = found
        notes = dict(zip(keys, values, strict=True))
        return Pod(
            Meta(name, features.namespace, uid, labels=dict(features.labels), annotations=notes),
            PodSpec(node, containers=spec.containers, init_containers=spec.init_containers),
            _ADMITTED if admitted else _AWAITED,
        )

    def hand_out(self, node: str, text: str) -> bool:
        """What the node's plugin says now; True when that is something else than before."""
        if self._handed.get(node, "") == text:
            return False
        self._handed[node] = text
        if not text:
            del self._handed[node]
        return True

    def handed(self, uid: str, node: str) -> str:
        """What that node's plugin says that it has handed to the pod; empty: it says nothing."""
        text = self._handed.get(node)
        return handed_to(text, uid) if text else ""

    def _spec(self, spec: PodSpec, kind: Kind) -> PodSpec:
        found = self._specs.get(kind.containers)
        if found is None:
            if len(self._specs) > NAMES_KEPT:
                self._specs.clear()
            found = self._specs[kind.containers] = PodSpec(
                containers=[Container(resources=c.resources) for c in spec.containers],
                init_containers=[
                    Container(resources=c.resources, restart_policy=c.restart_policy) for c in spec.init_containers
                ],
            )
        return found


def _is_read(key: str) -> bool:
    """Device decisions are annotations with a domain."""
    domain, slash, _ = key.partition("/")
    foreign = any(domain == known or domain.endswith(f".{known}") for known in FOREIGN)
    return bool(slash) and not foreign and key not in UNREAD
