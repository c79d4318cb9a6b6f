"""Histories of the driver of NPUs by claim: kills at every write and call, journals and books that are damaged, resets and boots.
No two claims have one slice, who has a claim has its slice, and nothing stays behind."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kit.npu_nodes import Npus, U
from kit.seeds import chosen_seed
from tests.unit.devices.ascend_mindcluster.plugin.test_npus_by_claim import Api, Here, key

from pumice.adapters.bookings import claims as book
from pumice.adapters.journal import FileJournal
from pumice.devices.ascend_mindcluster.node.claims import parts
from pumice.wire.our_devices import NPU_CLAIMS

HISTORIES, STEPS = 15, 40
SEED = chosen_seed()
DEEDS = ("prepare", "prepare", "prepare", "unprepare", "again", "restart", "journal", "book", "reset", "boot")
DEVICES = [part.name for card in Npus().facts() for part in parts(card)]
SMALL = [name for name in DEVICES if "vir01" in name or "vir02" in name]


class Killed(BaseException):
    pass


class Life:
    """A node, its driver, and the claims that were answered and not given back."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng, self.folder, self.npus, self.api = Random(seed), folder, Npus(), Api()
        self.here = Here(folder, self.npus, self.api)
        self.held: dict[str, str] = {}
        self.left = 0
        """Half steps of writes and calls until the driver is killed; 0: it lives."""
        self.told: list[str] = []

    def mortal(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def half() -> None:
            self.left -= self.left > 0
            if self.dying and self.left == 0:
                self.dying = False
                raise Killed

        def call(*args: Any, **more: Any) -> Any:
            half()
            found = real(*args, **more)
            half()
            return found

        return call

    dying = False

    async def play(self) -> None:
        self.driver = await self.here.started()
        for number in range(STEPS):
            deed = self.rng.choice(DEEDS)
            self.dying = deed in ("prepare", "unprepare", "restart") and self.rng.random() < 0.25
            self.left = self.rng.randint(1, 10)
            self.told.append(f"{deed}{' to death' if self.dying else ''}")
            try:
                await self.do(deed, f"c{number}")
            except Killed:
                await self.begin()
                if deed == "prepare":  # the pod is deleted before it was answered
                    assert await self.driver.unprepare(key(f"c{number}")) == ""
            self.dying = False
        await self.driver.put_right()
        await self.end()

    async def do(self, deed: str, fresh: str) -> None:
        name = self.rng.choice([*self.held, ""])
        if deed == "prepare":
            self.api.claims[fresh] = self.rng.choice(SMALL if self.rng.random() < 0.8 else DEVICES)
            if not isinstance(await self.driver.prepare(key(fresh)), str):
                self.held[fresh] = self.api.claims[fresh]
        elif deed == "unprepare" and name:
            assert await self.driver.unprepare(key(name)) == ""
            del self.held[name]
        elif deed == "again" and name:
            await self.asked_again(name)
        elif deed == "restart":
            self.driver = await self.here.started()
        elif deed in ("journal", "book"):
            path = self.folder / ("vnpu/claims.json" if deed == "journal" else f"run/{NPU_CLAIMS.book}")
            if path.exists():
                path.write_text('{"ver')
            if self.rng.random() < 0.3:
                await self.driver.put_right()
        elif deed == "reset":
            self.npus.made[self.rng.choice(U)].clear()
        elif deed == "boot":
            for uuid in U:
                self.npus.made[uuid].clear()
            for tmpfs in ("run", "cdi"):
                shutil.rmtree(self.folder / tmpfs, ignore_errors=True)
            await self.begin()

    async def begin(self) -> None:
        """A driver starts, and the kubelet asks again for what runs."""
        self.driver = await self.here.started()
        for name in self.held:
            await self.asked_again(name)

    async def asked_again(self, name: str) -> None:
        found = await self.driver.prepare(key(name))
        assert not isinstance(found, str), found

    async def end(self) -> None:
        slices: set[tuple[str, str]] = set()
        for name, device in self.held.items():
            await self.asked_again(name)
            (env,) = self.here.env(name)
            if env["ASCEND_RUNTIME_OPTIONS"] == "VIRTUAL":
                slices.add((U[int(device.split("-")[1])], env["ASCEND_VISIBLE_DEVICES"]))
        assert len(slices) == sum(device.count("-") > 1 for device in self.held.values())
        assert slices == {(uuid, str(number)) for uuid, made in self.npus.made.items() for number in made}
        for name in list(self.held):
            assert await self.driver.unprepare(key(name)) == ""
        await self.driver.put_right()
        assert not any(self.npus.made.values())
        assert book.prepared(self.folder / "run", NPU_CLAIMS.book) == []


@pytest.mark.parametrize("at", range(HISTORIES))
def test_claims_have_their_slices_and_nothing_stays_behind(at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(SEED + at, tmp_path)
    monkeypatch.setattr(book, "write", life.mortal(book.write))
    monkeypatch.setattr(FileJournal, "write", life.mortal(FileJournal.write))
    for call in ("make", "destroy"):
        monkeypatch.setattr(life.npus, call, life.mortal(getattr(life.npus, call)))
    try:
        asyncio.run(life.play())
    except AssertionError as problem:
        raise AssertionError(f"seed {SEED + at}: {'; '.join(life.told)}") from problem
