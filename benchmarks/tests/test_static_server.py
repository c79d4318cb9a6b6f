"""The static list server finds fault with a scheduler that books twice."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.static_server import MIB, Store


def binding(uuid: str, mib: int, where: str = "n00000") -> dict[str, Any]:
    ids = f"{uuid},NVIDIA,{mib},10:"
    return {"metadata": {"annotations": {"volcano.sh/vgpu-ids-new": ids}}, "target": {"name": where}}


def test_a_pod_is_bound_once() -> None:
    store = Store(nodes=1, pods=0, pending=1, lives=0)
    assert [store.bind("new-0", binding("GPU-n00000-0", 8000)) for _ in range(2)] == [201, 409]
    assert store.bind("unknown", binding("GPU-n00000-0", 8000)) == 404


def test_a_card_over_its_memory_ends_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(nodes=1, pods=10, pending=1, lives=0)
    with pytest.raises(SystemExit):
        store.bind("new-0", binding("GPU-n00000-0", MIB - 80_000 + 1))
    assert "is over" in capsys.readouterr().out


def test_a_life_gives_its_share_back_and_makes_room_for_the_next_one() -> None:
    store = Store(nodes=1, pods=0, pending=0, lives=3)
    store.next_life()
    for number in range(3):
        assert store.bind(f"new-{number}", binding("GPU-n00000-0", MIB)) == 201
    assert (store.bound, store.pending, store.cards["GPU-n00000-0"]) == (3, {}, 0)
