"""adminAccess: who looks at a card gets it beside whoever has it, without a share, and with nothing that computes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.devices.nvidia_vgpu.plugin.test_claim_attacks import CARDS, Api, key, started

from pumice.adapters.bookings import claims as book
from pumice.devices.nvidia_vgpu.node.claims import prepare
from pumice.devices.nvidia_vgpu.plugin import claim_daemon
from pumice.node.claims import Holdings, PreparedClaim
from pumice.ports.cards import CardFacts

GIB = 1 << 30


def looks(*devices: str, asked: bool = True) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.pumice.io", "allocationMode": "All", "adminAccess": asked}}
    results = [{"request": "gpu", "driver": "gpu.pumice.io", "pool": "n1", "device": one, "adminAccess": True} for one in devices]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": "q"}]}
    meta = {"namespace": "default", "name": "look", "uid": "look"}
    return {"metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status}


class Looking(Api):
    """Claim ``look`` asks for all cards with adminAccess."""

    def _claim(self, name: str) -> Any:
        return looks("gpu-0-shared", "gpu-1-shared") if name == "look" else super()._claim(name)


def test_13_who_looks_gets_the_cards_of_others_without_a_share_and_takes_nothing_of_them(tmp_path: Path) -> None:
    async def story() -> None:
        api = Looking(look="0", big="80Gi", bigger="8Gi")
        node = await started(tmp_path, api)
        assert not isinstance(await node.prepare(key("big")), str)
        assert not isinstance(answer := await node.prepare(key("look")), str)
        assert [device.device for device in answer] == ["gpu-0-shared", "gpu-1-shared"]
        [file] = [path for path in (tmp_path / "cdi").iterdir() if "look" in path.name]
        [device] = json.loads(file.read_text())["devices"]
        assert device["containerEdits"] == {"env": ["NVIDIA_VISIBLE_DEVICES=GPU-0,GPU-1", "NVIDIA_DRIVER_CAPABILITIES=utility"]}
        held = book.held_by_claims([tmp_path / "run"])
        assert list(held) == ["GPU-0"]
        assert "look" not in held["GPU-0"]
        assert "what default/big holds" in str(await node.prepare(key("bigger")))
        lines = [labels for family in await node.metrics() for labels, _ in family.samples]
        assert {labels["claim"] for labels in lines if "claim" in labels} == {"big"}

    asyncio.run(story())


def test_a_look_is_served_where_pods_hold_cards_that_nobody_can_name_and_a_share_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        api = Looking(look="0", small="1Gi")
        api.pods = [{"metadata": {"namespace": "default", "name": "p", "uid": "p"}, "spec": {"containers": []}}]
        monkeypatch.setattr(claim_daemon, "card_holders", lambda folder: {"p"})
        node = await started(tmp_path, api)
        assert "that no annotation names" in str(await node.prepare(key("small")))
        assert not isinstance(await node.prepare(key("look")), str)

    asyncio.run(story())


@pytest.mark.parametrize("device", ["gpu-0", "gpu-0-shared", "gpu-0-mig-1g5gb-19-4"])
def test_a_look_is_at_the_whole_card_whoever_has_it_and_in_mig_mode_too(device: str) -> None:
    card = CardFacts(0, "GPU-0", "NVIDIA A100", 80 * GIB, minor=0, mig="mig" in device)
    found = prepare(looks(device), "look", "n1", [card], Holdings((), {"GPU-0": "shared by annotated pods (default/p)"}))
    assert isinstance(found, PreparedClaim)
    assert [(one.card, one.admin, one.limited) for one in found.shares] == [("GPU-0", True, False)]


@pytest.mark.parametrize(("claim", "why"), [
    (looks("gpu-0", asked=False), "its status says adminAccess, and its specification does not ask for it"),
    (looks("gpu-10-shared"), "device gpu-10-shared is not on this node"),
])  # fmt: skip
def test_a_status_that_says_more_than_the_specification_asks_is_refused(claim: dict[str, Any], why: str) -> None:
    assert why in str(prepare(claim, "look", "n1", CARDS, Holdings()))


