"""What placed pods' objects say of the cards that they hold, kept for as long as they are there.

A node's cards may be registered late or anew, and the families may change: then the pods are read again. Most of tens of
thousands of pods are written alike but for name and annotations, so all the rest is kept once.
"""

from __future__ import annotations

from pumice.engine.classes import Kind
from pumice.wire import names
from pumice.wire.objects import Container, Meta, Pod, PodSpec

NAMES_KEPT = 4096
"""Annotation names, and sets of them, that are recognised; what is in use lives on with its pods."""

UNREAD = frozenset((
    names.DEVICES_TO_ALLOCATE, names.VGPU_TIME, names.BIND_PHASE, names.BIND_TIME, names.PREDICATE_TIME,
))  # fmt: skip
"""Annotations of ours that repeat others or tell the time."""
FOREIGN = ("kubernetes.io", "cncf.io", "projectcalico.org", "prometheus.io", "istio.io", "linkerd.io")
"""Domains (and all below them) that say nothing of cards; some of their annotations are long."""

Kept = tuple[Pod, str, tuple[str, ...], tuple[str, ...]]


class Evidence:
    """Per pod its frame (what is written in all pods of its kind), its name, and the names and values of its annotations."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, uid: str, name: str, pod: Pod, kind: Kind) -> None:
        notes, node = pod.metadata.annotations, pod.spec.node_name
        read = tuple([key for key in notes if _is_read(key)])
        if len(self._names) > NAMES_KEPT:
            self._names.clear()
        if kind.frame is None:
            kind.frame = _frame(pod)
        values = tuple([value if (value := notes[key]) != node else node for key in read])
        self._kept[uid] = kind.frame, name, self._names.setdefault(read, read), values

    def drop(self, uid: str) -> None:
        self._kept.pop(uid, None)

    def pod(self, uid: str, node: str) -> Pod | None:
        """The pod as far as it tells which cards of that node it holds; None when it holds none."""
        found = self._kept.get(uid)
        if found is None:
            return None
        frame, name, keys, values = found
        meta, spec = frame.metadata, frame.spec
        return Pod(
            Meta(name, meta.namespace, uid, labels=meta.labels, annotations=dict(zip(keys, values, strict=True))),
            PodSpec(node, containers=spec.containers, init_containers=spec.init_containers),
        )


def _frame(pod: Pod) -> Pod:
    meta, spec = pod.metadata, pod.spec
    return Pod(
        Meta(namespace=meta.namespace, labels=meta.labels),
        PodSpec(
            containers=[Container(resources=c.resources) for c in spec.containers],
            init_containers=[
                Container(resources=c.resources, restart_policy=c.restart_policy) for c in spec.init_containers
            ],
        ),
    )


def may_hold_cards(pod: Pod) -> bool:
    """Device decisions are annotations with a domain; pods without any hold no card."""
    return any("/" in key for key in pod.metadata.annotations) and any(
        "/" in name for c in (*pod.spec.containers, *pod.spec.init_containers) for name in c.resources.limits
    )


_known: dict[str, bool] = {}


def _is_read(key: str) -> bool:
    found = _known.get(key)
    if found is None:
        if len(_known) >= NAMES_KEPT:
            _known.clear()
        domain, slash, _ = key.partition("/")
        foreign = any(domain == known or domain.endswith(f".{known}") for known in FOREIGN)
        found = _known[key] = bool(slash) and not foreign and key not in UNREAD
    return found
