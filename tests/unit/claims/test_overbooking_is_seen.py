"""The audit of claims sees each way of giving the same thing twice, from API objects alone."""

from __future__ import annotations

from typing import Any

import pytest
from kit.claims import DRIVER, device, published, shared_card, with_counters

from pumice.audit.claim_rules import overbooked

Json = dict[str, Any]


def held(name: str, device: str, **more: Any) -> Json:
    result = {"driver": DRIVER, "pool": "n1", "device": device, **more}
    return {"metadata": {"name": name}, "status": {"allocation": {"devices": {"results": [result]}}}}


def share(id_: str, memory: str) -> Json:
    return {"shareID": id_, "consumedCapacity": {"memory": memory, "cores": "0"}}


CARD = [published(shared_card("d"))]
DRAWN = [{"counterSet": "card", "counters": {"memory": {"value": "80Gi"}}}]
BOTH = with_counters(shared_card("shared", consumesCounters=DRAWN), device("p0", "40Gi"), device("p1", "40Gi"))


@pytest.mark.parametrize(("slices", "claims", "said"), [
    ([published(device("d"))], [held("a", "d"), held("b", "d")], "is for one claim and is held by a, b"),
    (CARD, [held("a", "d", **share("1", "50Gi")), held("b", "d", **share("2", "50Gi"))], "80Gi of memory"),
    (CARD, [held("a", "d", **share("1", "1Gi")), held("b", "d", **share("1", "1Gi"))], "have one id"),
    (BOTH, [held("a", "shared", **share("1", "1Gi")), held("b", "p0")], "card/memory has 85899345920, and devices in use draw"),
])  # fmt: skip
def test_what_is_given_twice_is_named(slices: list[Json], claims: list[Json], said: str) -> None:
    (text,) = overbooked(claims, slices)
    assert said in text


def test_what_fits_beside_one_another_is_not() -> None:
    fit = [held("a", "p0"), held("b", "p1"), held("c", "p0", adminAccess=True)]
    assert list(overbooked(fit, BOTH)) == []
    shares = [held("a", "shared", **share("1", "40Gi")), held("b", "shared", **share("2", "40Gi"))]
    assert list(overbooked(shares, BOTH)) == []
