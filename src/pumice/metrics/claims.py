"""The page of the driver of claims: what each share is allowed and uses, by pod, claim and share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pumice.metrics.monitor import LONGEST_SAMPLE, MOST, PODS_OF_A_PAGE, PodUse, of_claim
from pumice.metrics.text import MetricFamily, gauge


@dataclass(frozen=True, slots=True)
class ShareView:
    """One share of a claim. ``pods`` use the claim, all of them this share together. ``used``: bytes, ``busy``: percent of the
    card's cores; None where nobody tells."""

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
    busy: float | None = None


def claim_families(node: str, shares: Iterable[ShareView], refused: int) -> list[MetricFamily]:
    """``refused``: claims that were not prepared, since the driver started."""
    memory = gauge("pumice_claim_share_memory_limit_bytes", "Memory of the card that the share of a claim may use.")
    cores = gauge("pumice_claim_share_cores", "Percent of the card's cores that the share of a claim may use.")
    used = gauge("pumice_claim_share_memory_used_bytes", "Memory of the card that the containers of a share use.")
    busy = gauge("pumice_claim_share_cores_used", "Percent of the card's cores that the containers of a share use.")
    for one in shares:
        for pod in one.pods or ("",):
            labels = {"node": node, "namespace": one.namespace, "pod": pod, "claim": one.claim, "request": one.request,
                      "share": one.share, "device": one.device, "uuid": one.uuid}  # fmt: skip
            memory.add(one.memory, labels)
            cores.add(one.cores, labels)
            if one.used is not None:
                used.add(one.used, labels)
            if one.busy is not None:
                busy.add(one.busy, labels)
    family = MetricFamily("pumice_claims_refused_total", "counter", "Claims that were not prepared.")
    family.add(refused, {"node": node})
    return [memory, cores, used, busy, family]


# -- read back by whoever keeps accounts -------------------------------------------------------------------------------

_SAMPLE = re.compile(r'pumice_claim_share_(memory_limit_bytes|memory_used_bytes|cores_used)\{([^}]*)\} (\S+)')
_LABEL = re.compile(r'(\w+)="([^"\\]*)"')


def claim_uses(text: str) -> dict[tuple[str, str], PodUse]:
    """Return the figures of each claim on a page, as ``of_claim`` names it. A share that several pods have stands there for each
    of them, and counts once. What no card can say is not read."""
    seen: dict[tuple[str, ...], float] = {}
    for line in text.split("\n"):
        if len(line) > LONGEST_SAMPLE or (sample := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = dict(_LABEL.findall(sample[2]))
        key = (sample[1], *(labels.get(name, "") for name in ("namespace", "claim", "request", "share", "device")))
        try:
            value = float(sample[3])
        except ValueError:
            continue
        if 0 <= value < MOST and (key in seen or len(seen) < PODS_OF_A_PAGE):
            seen[key] = value
    found: dict[tuple[str, str], PodUse] = {}
    for (what, namespace, claim, *_), value in seen.items():
        use = found.setdefault(of_claim(namespace, claim), PodUse())
        match what:
            case "memory_limit_bytes":
                use.limit = (use.limit or 0.0) + value
            case "memory_used_bytes":
                use.used = (use.used or 0.0) + value
            case _:
                use.cores = (use.cores or 0.0) + value
    return found
