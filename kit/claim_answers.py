"""The answers of ``pumice.claims`` and of Kubernetes' allocator about one world, in the same words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kit.claim_worlds import World
from pumice.claims.filling import Rank
from pumice.claims.objects import claim_of, class_of, results_of, slice_of
from pumice.claims.reasons import Cause, Unallocated
from pumice.claims.search import BUDGET, allocate, finished
from pumice.claims.slices import Node, Slices
from pumice.claims.usage import usage_of

Answer = tuple[str, Any]
"""``ok`` with the allocations, ``none``, or ``error``; the last two with a text."""


def ours(world: World, budget: int = BUDGET, rank: Rank | None = None) -> Answer:
    now = Slices(map(slice_of, world.slices))
    results = [result for claim in world.in_use for result in results_of(claim)]
    before = now if world.seen is world.slices else Slices(map(slice_of, world.seen))
    usage = usage_of(results, now, usage_of(results, before))
    classes = {one["metadata"]["name"]: class_of(one) for one in world.classes}
    node = Node(world.node["metadata"]["name"], world.node["metadata"]["labels"])
    numbers = count()
    found = finished(allocate(list(map(claim_of, world.claims)), node, now, classes, usage,
                              share_id=lambda: f"share-{next(numbers)}", budget=budget, rank=rank))  # fmt: skip
    if isinstance(found, Unallocated):
        return "none" if found.cause is Cause.NODE else "error", found.text
    return "ok", [allocation.as_json() for allocation in found]


class Kubernetes:
    """Its allocator, behind a pipe."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def __call__(self, question: dict[str, Any]) -> Answer:
        self.ask(question)
        return self.answer()

    def ask(self, question: dict[str, Any]) -> None:
        """Ask, and let it think: whoever asks has time for something else until ``answer``."""
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(question) + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Answer:
        """Return the answer to what was asked last."""
        assert self._process.stdout is not None
        said = msgspec.json.decode(self._process.stdout.readline())
        if said.get("error"):
            return "none" if "invalid resource pools" in said["error"] else "error", said["error"]
        return ("none", "") if said["allocations"] is None else ("ok", said["allocations"])


@pytest.fixture(scope="module")
def allocator() -> Iterator[Kubernetes]:
    """Kubernetes' allocator as ``make kube`` built it."""
    path = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"), "allocator")
    if not path.exists():
        assert "PUMICE_CI" not in os.environ, "make kube builds the allocator"
        pytest.skip("no allocator in KUBEBUILDER_ASSETS: make kube")
    process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Kubernetes(process)
    finally:
        process.kill()
        process.wait()


def plain(answer: Answer) -> Answer:
    """The answer without what is drawn by chance (shareID), and without the words of refusals."""
    kind, said = answer
    return (kind, [_plain(one) for one in said]) if kind == "ok" else (kind, "")


def _plain(allocation: dict[str, Any]) -> dict[str, Any]:
    results = [{key: value for key, value in one.items() if key not in ("shareID", "tolerations")}
               for one in allocation["devices"]["results"]]  # fmt: skip
    return {"results": results, "config": allocation["devices"].get("config", []), "nodeSelector": allocation.get("nodeSelector")}
