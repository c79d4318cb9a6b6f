"""Which volumes the claims of a pod would get on a node: free ones that fit, or one that is made there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pumice.engine.state.classes import PodClass
from pumice.engine.state.ledger import Ledger
from pumice.engine.state.volumes import Claim, Volumes

Mask = NDArray[np.bool_]


class VolumeOptions:
    """For some unbound claims, the free volumes (smallest first) with the rows they may be used on, and the rows on which one
    can be made."""

    def __init__(self, ledger: Ledger, volumes: Volumes, claims: list[Claim], *, by_room: bool) -> None:
        labels, capacity = ledger.terms.labels, ledger.table.capacity
        self.claims = sorted(claims, key=lambda claim: claim.size)
        self.made = {claim.key: _provisioned(ledger, volumes, claim, by_room=by_room) for claim in claims}
        self.free = {
            claim.key: [
                (v.name, np.ones(capacity, bool) if v.affinity is None else labels.match_any(v.affinity)[:capacity])
                for v in volumes.candidates(claim)
            ]
            for claim in claims
        }  # fmt: skip

    def at(self, row: int) -> dict[str, str] | None:
        """Claim to volume on one row; None where some claim finds nothing."""
        taken: dict[str, str] = {}
        for claim in self.claims:
            mine = next((name for name, fits in self.free[claim.key] if fits[row] and name not in taken.values()), "")
            if not mine and not self.made[claim.key][row]:
                return None
            taken[claim.key] = mine
        return taken


def _provisioned(ledger: Ledger, volumes: Volumes, claim: Claim, *, by_room: bool) -> Mask:
    """Rows for which the claim's class makes volumes; ``by_room``: of that size."""
    labels, capacity = ledger.terms.labels, ledger.table.capacity
    made_by = volumes.classes.get(claim.storage_class)
    if made_by is None or not made_by.provisions:
        return np.zeros(capacity, bool)
    rows = np.ones(capacity, bool)
    if made_by.topologies is not None:
        rows &= labels.match_any(made_by.topologies)[:capacity]
    if claim.selected_node:  # its volume is being made for that node
        at = np.zeros(capacity, bool)
        row = ledger.table.row_of.get(claim.selected_node)
        if row is not None:
            at[row] = True
        rows &= at
    if by_room and (room := volumes.room(claim)) is not None:
        rows &= labels.match_any(room)[:capacity]
    return rows


def volumes_for(ledger: Ledger, volumes: Volumes, cls: PodClass, node: str) -> dict[str, str]:
    """Which volume each unbound claim of the pod gets on that node; empty: one is made there."""
    known = [volumes.claims.get(key) for key in cls.constraints.claim_keys]
    claims = [claim for claim in known if claim is not None and not claim.bound]
    row = ledger.table.row_of.get(node)
    if not claims or row is None:
        return {}
    return VolumeOptions(ledger, volumes, claims, by_room=True).at(row) or {}
