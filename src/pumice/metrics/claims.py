"""The page of the driver of claims: what each share is allowed and uses, by pod, claim and share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pumice.metrics.text import MetricFamily, gauge


@dataclass(frozen=True, slots=True)
class ShareView:
    """One share of a claim. ``pods`` use the claim, all of them this share together. ``used``: bytes; None where nobody tells."""

    namespace: str
    claim: str
    request: str
    share: str
    device: str
    uuid: str
    pods: Sequence[str]
    memory: int
    cores: int
    used: int | None = None


def claim_families(node: str, shares: Iterable[ShareView], refused: int) -> list[MetricFamily]:
    """``refused``: claims that were not prepared, since the driver started."""
    memory = gauge("pumice_claim_share_memory_limit_bytes", "Memory of the card that the share of a claim may use.")
    cores = gauge("pumice_claim_share_cores", "Percent of the card's cores that the share of a claim may use.")
    used = gauge("pumice_claim_share_memory_used_bytes", "Memory of the card that the containers of a share use.")
    for one in shares:
        for pod in one.pods or ("",):
            labels = {"node": node, "namespace": one.namespace, "pod": pod, "claim": one.claim, "request": one.request,
                      "share": one.share, "device": one.device, "uuid": one.uuid}  # fmt: skip
            memory.add(one.memory, labels)
            cores.add(one.cores, labels)
            if one.used is not None:
                used.add(one.used, labels)
    family = MetricFamily("pumice_claims_refused_total", "counter", "Claims that were not prepared.")
    family.add(refused, {"node": node})
    return [memory, cores, used, family]
