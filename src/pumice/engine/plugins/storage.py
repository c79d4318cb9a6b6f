"""Volumes: claims that exist, bound volumes within reach of the node, zones (spec volcano-core 11.8, filters 7 and 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pumice.engine.framework import Verdict
from pumice.engine.selectors import Requirement

if TYPE_CHECKING:
    from pumice.engine.classes import PodClass
    from pumice.engine.state import State

Mask = NDArray[np.bool_]


def storage_verdicts(
    state: State, cls: PodClass, take: Callable[[Mask], Mask], *, zones: bool, binding: bool
) -> Iterator[Verdict]:
    volumes, capacity = state.volumes, state.ledger.table.capacity
    labels = state.ledger.terms.labels
    everywhere = np.ones(capacity, bool)
    for name in cls.constraints.claims:
        claim = volumes.claims.get(f"{cls.constraints.namespace}/{name}")
        if claim is None:
            yield Verdict(take(everywhere), f'persistentvolumeclaim "{name}" not found', final=True, abort=True)
            continue
        if not claim.volume:
            if binding and volumes.immediate.get(claim.storage_class, bool(claim.storage_class)):
                text = "pod has unbound immediate PersistentVolumeClaims"
                yield Verdict(take(everywhere), text, final=True, abort=True)
            continue
        if zones:
            wrong = np.zeros(capacity, bool)
            for key, allowed in volumes.zones.get(claim.volume, ()):
                wrong |= ~labels.matches(Requirement(key, "In", tuple(sorted(allowed))))[:capacity]
            if wrong.any():
                yield Verdict(take(wrong), "node(s) had no available volume zone", final=True, abort=True)
        terms = volumes.affinity.get(claim.volume)
        if binding and terms is not None:
            far = ~labels.match_any(terms)[:capacity]
            yield Verdict(take(far), "node(s) had volume node affinity conflict", final=True, abort=True)
