"""Probes of the plugins: well and ready, well and waiting, or not well."""

from __future__ import annotations

import asyncio
import random
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kit.machines import cards_of
from kit.node_objects import NODE, two_cards
from kit.node_world import FakeKubelet, node_cluster
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.node.card_watch import open_cards
from pumice.apps.node.pages import STUCK, PluginHealth, plugin_pages
from pumice.devices.nvidia_gpushare.plugin import daemon as gpushare_plugin
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiPlaces
from pumice_lab.free_ports import free_port

Settings = Callable[..., Any]


def vgpu(root: Path, **more: Any) -> tuple[Any, Any]:
    return vgpu_plugin.run, vgpu_plugin.Settings(
        NODE, device_plugin_dir=root, hook_path=root / "hook", lock_dir=root / "lock", node_config=root / "none.json", **more)


def gpushare(root: Path, **more: Any) -> tuple[Any, Any]:
    return gpushare_plugin.run, gpushare_plugin.Settings(NODE, device_plugin_dir=root, **more)


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.status, (await answer.text()).strip()


async def until(port: int, path: str, code: int) -> str:
    """The page's text once it has this code."""
    async with asyncio.timeout(120):
        while True:
            try:
                status, text = await ask(port, path)
            except aiohttp.ClientConnectionError:
                status, text = 0, ""
            if status == code:
                return text
            await asyncio.sleep(0.5)


@asynccontextmanager
async def running(plugin: Settings, root: Path, cards: Any, **more: Any) -> AsyncIterator[tuple[int, FakeKubelet]]:
    """A plugin that serves its probes on a port, and the kubelet beside it."""
    cluster, kubelet, port, stop = node_cluster(), FakeKubelet(root), free_port(), asyncio.Event()
    await kubelet.start()
    run, settings = plugin(root, health_address="127.0.0.1", health_port=port, **more)
    task = asyncio.create_task(
        run(settings, cluster=cluster, clock=VirtualClock(), rng=random.Random(7), stop=stop, cards=cards)
    )
    try:
        yield port, kubelet
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)
        await kubelet.stop()


@pytest.mark.parametrize("plugin", [vgpu, gpushare])
def test_a_plugin_is_ready_while_the_kubelet_knows_its_cards(plugin: Settings) -> None:
    async def act(root: Path, cards: Any) -> None:
        async with running(plugin, root, cards) as (port, kubelet):
            await until(port, "/readyz", 200)
            assert await ask(port, "/healthz") == (200, "ok")
            await kubelet.stop()
            (root / "kubelet.sock").unlink(missing_ok=True)
            assert "volcano.sh/" in await until(port, "/readyz", 503)
            assert await ask(port, "/healthz") == (200, "ok")
            await kubelet.start()
            await until(port, "/readyz", 200)

    with cards_of(two_cards()) as (_, cards), tempfile.TemporaryDirectory(prefix="pumice") as folder:
        run_virtually(act(Path(folder), cards))


@pytest.mark.parametrize("plugin", [vgpu, gpushare])
def test_a_plugin_that_waits_for_a_driver_is_well_so_that_no_kubelet_ends_it_again_and_again(plugin: Settings) -> None:
    async def act(root: Path) -> None:
        async with running(plugin, root, None, nvml=str(root / "no-library"), wait_for_driver=True) as (port, _):
            assert await until(port, "/readyz", 503) == "waiting for: the driver"
            assert await ask(port, "/healthz") == (200, "ok")

    with tempfile.TemporaryDirectory(prefix="pumice") as folder:
        run_virtually(act(Path(folder)))


def test_a_driver_that_no_longer_answers_is_not_well() -> None:
    class Silent:
        stuck = STUCK + 1

    async def act() -> tuple[int, str]:
        port = free_port()
        async with plugin_pages("127.0.0.1", port, PluginHealth(Silent())):  # type: ignore[arg-type]
            return await ask(port, "/healthz")

    assert asyncio.run(act()) == (503, "the driver has not answered for 91 s")


class Hanging:
    """Cards of which one call never returns, until the test is over, once it has answered so many times."""

    def __init__(self, cards: Any, call: str, answers: int = 0) -> None:
        self._cards, self._call, self._answers = cards, call, answers
        self.inside, self.over = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name != self._call or self._answers > 0:
            self._answers -= name == self._call
            return getattr(self._cards, name)
        return self._hang

    def _hang(self, *_: Any) -> Any:
        self.inside.set()
        self.over.wait()
        return ()


def by_cdi(root: Path, **more: Any) -> tuple[Any, Any]:
    return vgpu(root, cdi=CdiPlaces(root / "cdi"), response_options=ResponseOptions(strategies=("cdi-cri",)), **more)


@pytest.mark.parametrize(
    ("plugin", "call", "answers"),
    [(vgpu, "facts", 0), (vgpu, "subscribe", 0), (vgpu, "events", 0), (by_cdi, "facts", 1), (gpushare, "facts", 0),
     (gpushare, "events", 0)],
)  # fmt: skip
def test_a_call_of_the_driver_that_never_returns_keeps_no_plugin_from_ending(plugin: Settings, call: str, answers: int) -> None:
    """In real time: a virtual clock would wait for the thread."""

    async def act(root: Path, cards: Hanging) -> None:
        async with running(plugin, root, cards, health_every=0.01, driver_patience=0.1):
            while not cards.inside.is_set():
                await asyncio.sleep(0.01)
        assert not cards.over.is_set()

    with cards_of(two_cards()) as (_, real), tempfile.TemporaryDirectory(prefix="pumice") as folder:
        cards = Hanging(real, call, answers)
        try:
            asyncio.run(act(Path(folder), cards))
        finally:
            cards.over.set()


def test_a_driver_that_hangs_while_it_is_opened_keeps_no_plugin_from_ending() -> None:
    async def story() -> None:
        inside, over = threading.Event(), threading.Event()

        def opened() -> Any:
            inside.set()
            over.wait()

        stop = asyncio.Event()
        waiting = asyncio.create_task(open_cards(opened, True, VirtualClock(), stop))
        while not inside.is_set():
            await asyncio.sleep(0.01)
        stop.set()
        assert await waiting is None
        over.set()

    asyncio.run(story())
