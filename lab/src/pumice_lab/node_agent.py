"""The daemons of one emulated or real node: the device plugins that the scheduler's configuration asks for, and the monitor.

vGPU and legacy sharing exclude each other on one scheduler, as do both ways of sharing NPUs, so the node follows the scheduler's
ConfigMap: whoever switches the guide's configuration gets the plugin that goes with it. One process meets one machine (NVML's
state is per process), so with several nodes each agent is a process of its own:
``python -m pumice_lab.node_agent SETTINGS.json``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from pumice.adapters.bookings.foreign import booking_dirs
from pumice.apps.monitor import daemon as monitor
from pumice.apps.service.stopping import told_to_stop
from pumice.cli.daemon import log_to
from pumice.devices.ascend_hami.plugin import daemon as ascend_plugin
from pumice.devices.ascend_mindcluster.plugin import daemon as mindcluster_plugin
from pumice.devices.nvidia_gpushare.plugin import daemon as gpushare_plugin
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiPlaces
from pumice.devices.registry import settings_from
from pumice.devices.settings import Settings
from pumice.effects.tasks import first, run_until
from pumice.model.errors import BadInput, PumiceError
from pumice.model.hardware.npu import slice_kinds
from pumice.ports.clock import Clock, SystemClock
from pumice.ports.cluster import Cluster
from pumice.ports.mps import PROGRAM
from pumice.wire import names, variables
from pumice.wire.cdi import strategies
from pumice.wire.kinds import CONFIGMAPS, DEVICE_CLASSES
from pumice.wire.node_config import LIST, parse_node_config
from pumice.wire.objects import ConfigMap, decode
from pumice.wire.scheduler_conf import parse_scheduler_conf

log = logging.getLogger("pumice.cluster.node")

LEAVING = 10.0
"""Seconds for a plugin to take back what it has said of the node's cards, when another one shares them or the node ends."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of the process of one node. ``directory`` is the node's folder in the data dir, ``machine`` its emulated
    machine (empty: the real cards)."""

    node: str
    address: str
    directory: str
    kubeconfig: str
    plugin_dir: str
    machine: str = ""
    nvml: str = ""
    library: str = ""
    monitor_port: int = 9394
    cards: bool = True
    npu_port: int = 9395
    npu_claims_port: int = 9396
    npus: str = ""
    """Where the driver's library of the node's NPUs lies; empty: it has none."""
    npu: str = ""
    """Their type, as the driver names it."""
    sharing: str = "hami-core"
    """The sharing of its cards: what the node ConfigMap says elsewhere."""

    @property
    def hook_path(self) -> Path:
        return Path(self.directory, "vgpu")


async def run(settings: AgentSettings, *, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
              ready: asyncio.Event | None = None) -> None:
    """Serve until ``stop``. ``ready`` is set when the first plugin's cards are known to kubelet and API server.

    Raises what ended the following of the configuration or of the plugin: without either, a node waits for ever."""
    if settings.machine:
        os.environ["PUMICE_MACHINE"] = settings.machine  # the emulated driver libraries read it when they are loaded
    jobs = []
    if settings.npus:
        known = asyncio.Event() if settings.cards else ready  # with cards beside them those are waited for
        npu_modes: asyncio.Queue[str] = asyncio.Queue()
        cut_on_demand = settings.npu in {kind.driver for kind in slice_kinds().values()}
        jobs += [
            _follow(cluster, npu_modes, npu_mode if cut_on_demand else _hami_alone, "ascend"),
            _serve_plugin(settings, npu_modes, cluster, clock, rng, known),
            supervised("claims of NPUs", lambda: _serve_claims(
                names.NPU_CLAIM_DRIVER, partial(_npu_claims, settings, cluster, clock, rng), settings.node, cluster),
                stop=stop, clock=clock, log=log),
        ]  # fmt: skip
    if settings.cards:
        modes: asyncio.Queue[str] = asyncio.Queue()
        begin_again = asyncio.Event()
        write_node_config(settings)
        jobs += [
            _follow(cluster, modes, sharing_mode, "vgpu"),
            _follow_node_config(settings, cluster, begin_again),
            _serve_plugin(settings, modes, cluster, clock, rng, ready, begin_again),
            supervised("monitor", lambda: monitor.run(
                _monitor(settings), cluster=cluster, clock=clock, rng=rng, stop=stop), stop=stop, clock=clock, log=log),
            supervised("claims", lambda: _serve_claims(
                names.CLAIM_DRIVER, partial(_claims, settings, cluster, clock, rng), settings.node, cluster),
                stop=stop, clock=clock, log=log),
        ]  # fmt: skip
    await run_until(stop, *jobs)


async def _follow(cluster: Cluster, modes: asyncio.Queue[str], mode_of: Callable[[str, str], str], usual: str) -> None:
    """Put the name of the plugin that goes with the scheduler's configuration, whenever it changes."""
    last = ""
    selector = f"metadata.name={names.SCHEDULER_CONFIGMAP}"
    async for event in cluster.watch(CONFIGMAPS, names.SYSTEM_NAMESPACE, field_selector=selector):
        mode = last or usual
        if event.type in ("ADDED", "MODIFIED"):
            mode = mode_of(decode(ConfigMap, event.raw).data.get(names.SCHEDULER_CONF_KEY, ""), mode)
        if mode != last:
            last = mode
            await modes.put(mode)


def sharing_mode(conf: str, otherwise: str) -> str:
    """``gpushare`` or ``vgpu`` by the deviceshare arguments of a scheduler.conf; ``otherwise`` when it cannot be read."""
    settings = _device_settings(conf)
    if settings is None:
        return otherwise
    return "gpushare" if settings.on & {"deviceshare.GPUSharingEnable", "deviceshare.GPUNumberEnable"} else "vgpu"


def npu_mode(conf: str, otherwise: str) -> str:
    """``mindcluster`` or ``ascend`` (HAMi's) by the same."""
    settings = _device_settings(conf)
    if settings is None:
        return otherwise
    return "mindcluster" if "deviceshare.AscendMindClusterVNPUEnable" in settings.on else "ascend"


def _hami_alone(conf: str, otherwise: str) -> str:
    """MindCluster's way knows one type of chip."""
    return "ascend"


def _device_settings(conf: str) -> Settings | None:
    try:
        parsed = parse_scheduler_conf(conf)
    except PumiceError:
        return None
    arguments: dict[str, object] = {}
    for name in ("predicates", "deviceshare"):
        if plugin := parsed.plugin(name):
            arguments |= plugin.arguments
    settings = settings_from(arguments)
    return settings if isinstance(settings, Settings) else None


async def _serve_plugin(settings: AgentSettings, modes: asyncio.Queue[str], cluster: Cluster, clock: Clock,
                        rng: random.Random, ready: asyncio.Event | None, begin_again: asyncio.Event | None = None) -> None:
    mode = await modes.get()
    while True:
        stop = asyncio.Event()
        log.info("serving plugin=%s node=%s", mode, settings.node)
        plugin = _plugin(settings, mode, cluster, clock, rng, stop, ready, begin_again)
        job = asyncio.create_task(supervised(f"{mode} plugin", plugin, stop=stop, clock=clock, log=log))
        try:
            mode = await modes.get()
        finally:
            stop.set()
            await asyncio.wait({job}, timeout=LEAVING)  # cancelled at once, it would leave control daemons behind
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)  # awaited alone, it would swallow a cancellation of ours


def _plugin(settings: AgentSettings, mode: str, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event,
            ready: asyncio.Event | None, begin_again: asyncio.Event | None) -> Callable[[], Awaitable[None]]:
    if mode == "ascend":
        npus = _npus(settings)
        return lambda: ascend_plugin.run(npus, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)
    if mode == "mindcluster":
        chips = _chips(settings)
        return lambda: mindcluster_plugin.run(chips, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)
    if mode == "gpushare":
        legacy = gpushare_plugin.Settings(node_name=settings.node, device_plugin_dir=Path(settings.plugin_dir),
                                          nvml=settings.nvml, booking_dirs=booking_dirs(os.environ), **_named(settings))
        return lambda: gpushare_plugin.run(legacy, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)
    vgpu = vgpu_plugin.Settings(
        node_name=settings.node, device_plugin_dir=Path(settings.plugin_dir), hook_path=settings.hook_path,
        lock_dir=settings.hook_path / "lock", library=Path(settings.library) if settings.library else None,
        nvml=settings.nvml, booking_dirs=booking_dirs(os.environ), cdi=_cdi(settings),
        response_options=ResponseOptions(strategies=strategies([os.environ.get(variables.DEVICE_LIST_STRATEGY, "")])),
        node_config=node_config_of(settings), hangup=begin_again, mps_root=settings.hook_path / "mps",
        mps_program=_mps_program(settings), **_named(settings),
    )  # fmt: skip
    return lambda: vgpu_plugin.run(vgpu, cluster=cluster, clock=clock, rng=rng, stop=stop, ready=ready)


def _mps_program(settings: AgentSettings) -> str:
    return str(Path(settings.machine, "bin", PROGRAM)) if settings.machine else PROGRAM


async def _serve_claims(
    name: str, serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]], node: str, cluster: Cluster
) -> None:
    """Run a driver of claims while a DeviceClass names it: until then it costs one watch."""
    named: set[str] = set()
    driver: asyncio.Task[None] | None = None
    stop = asyncio.Event()
    try:
        async for event in cluster.watch(DEVICE_CLASSES):
            if event.type in ("ADDED", "MODIFIED", "DELETED"):
                of = decode(ConfigMap, event.raw).metadata.name
                named.discard(of)
                if event.type != "DELETED" and name.encode() in event.raw:
                    named.add(of)
            if named and driver is None:
                log.info("serving claims node=%s classes=%s", node, ",".join(sorted(named)))
                stop = asyncio.Event()
                driver = asyncio.create_task(serve(stop))
            elif not named and driver is not None:
                stop.set()
                await driver
                driver = None
    finally:
        if driver is not None:
            stop.set()
            await asyncio.wait({driver}, timeout=LEAVING)
            driver.cancel()
            await asyncio.gather(driver, return_exceptions=True)


async def _claims(
    settings: AgentSettings, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event
) -> None:
    from pumice.devices.nvidia_vgpu.plugin import claim_daemon  # who uses no claims does not load it

    driver = claim_daemon.Settings(
        node_name=settings.node, kubelet_dir=Path(settings.plugin_dir).parent, hook_path=settings.hook_path,
        lock_dir=settings.hook_path / "lock", library=Path(settings.library) if settings.library else None,
        nvml=settings.nvml, cdi_folder=Path(settings.directory, "cdi"), booking_dirs=booking_dirs(os.environ),
        mps_root=settings.hook_path / "claims-mps", mps_program=_mps_program(settings),
    )  # fmt: skip
    await supervised("driver of claims", lambda: claim_daemon.run(driver, cluster=cluster, clock=clock, rng=rng, stop=stop),
                     stop=stop, clock=clock, log=log)  # fmt: skip


async def _npu_claims(
    settings: AgentSettings, cluster: Cluster, clock: Clock, rng: random.Random, stop: asyncio.Event
) -> None:
    from pumice.devices.ascend_mindcluster.plugin import claim_daemon

    driver = claim_daemon.Settings(
        node_name=settings.node, kubelet_dir=Path(settings.plugin_dir).parent, dcmi=settings.npus,
        hook_path=Path(settings.directory, "vnpu"), cdi_folder=Path(settings.directory, "cdi"),
        booking_dirs=booking_dirs(os.environ), health_address=settings.address, health_port=settings.npu_claims_port,
    )  # fmt: skip
    await supervised("NPUs by claim", lambda: claim_daemon.run(driver, cluster=cluster, clock=clock, rng=rng, stop=stop),
                     stop=stop, clock=clock, log=log)  # fmt: skip


def node_config_of(settings: AgentSettings) -> Path:
    """The file in the place of the node ConfigMap's, which a kubelet would mount into the plugin's pod."""
    return Path(settings.directory, "node-config.json")


def write_node_config(settings: AgentSettings, text: str = "") -> bool:
    """Write the cluster's own entry of the node, and behind it those of the ConfigMap, which win. Return whether that is news.

    Raises BadInput where ``text`` is no node configuration; then the file stays as it is."""
    theirs = []
    if text:
        parse_node_config(text)
        theirs = json.loads(text).get(LIST, [])
    path, entries = node_config_of(settings), [{"name": settings.node, "operatingmode": settings.sharing}, *theirs]
    written = json.dumps({LIST: entries})
    if path.exists() and path.read_text("utf-8") == written:
        return False
    path.write_text(written, "utf-8")
    return True


async def _follow_node_config(settings: AgentSettings, cluster: Cluster, begin_again: asyncio.Event) -> None:
    """Have the plugin begin again whenever the node ConfigMap says something else."""
    selector = f"metadata.name={names.NODE_CONFIGMAP}"
    async for event in cluster.watch(CONFIGMAPS, names.DEVICE_CONFIG_NAMESPACE, field_selector=selector):
        if event.type not in ("ADDED", "MODIFIED", "DELETED"):
            continue
        there = event.type != "DELETED"
        text = decode(ConfigMap, event.raw).data.get(names.NODE_CONFIG_KEY, "") if there else ""
        try:
            if write_node_config(settings, text):
                begin_again.set()
        except BadInput as error:
            log.error("ConfigMap %s/%s is refused, the last one is kept: %s",
                      names.DEVICE_CONFIG_NAMESPACE, names.NODE_CONFIGMAP, error)  # fmt: skip


def _cdi(settings: AgentSettings) -> CdiPlaces:
    """Of an emulated machine's driver nothing lies on this one, whatever is installed here."""
    root, nowhere = Path(settings.directory, "cdi"), Path(settings.directory, "no-driver")
    if not settings.machine:
        return CdiPlaces(root)
    return CdiPlaces(root, hook=str(nowhere / "hook"), driver_root=str(nowhere), inside=nowhere, mounted=nowhere)


def _named(settings: AgentSettings) -> dict[str, Any]:
    """Our own runtime heeds CDI devices."""
    return {"named_shares": "on", "cdi_folder": Path(settings.directory, "cdi")}


def _npus(settings: AgentSettings) -> ascend_plugin.Settings:
    return ascend_plugin.Settings(
        node_name=settings.node, device_plugin_dir=Path(settings.plugin_dir), dcmi=settings.npus,
        hook_path=Path(settings.directory, "vnpu"), booking_dirs=booking_dirs(os.environ), health_address=settings.address,
        health_port=settings.npu_port, cleanup=True, **_named(settings))  # fmt: skip


def _chips(settings: AgentSettings) -> mindcluster_plugin.Settings:
    return mindcluster_plugin.Settings(
        node_name=settings.node, device_plugin_dir=Path(settings.plugin_dir), dcmi=settings.npus,
        journal=Path(settings.directory, "vnpu"), booking_dirs=booking_dirs(os.environ), health_address=settings.address,
        health_port=settings.npu_port, cleanup=True, **_named(settings))  # fmt: skip


def _monitor(settings: AgentSettings) -> monitor.Settings:
    return monitor.Settings(node_name=settings.node, hook_path=settings.hook_path, address=settings.address,
                            port=settings.monitor_port, nvml=settings.nvml)


def main(argv: list[str] | None = None) -> None:
    """One agent as a process: settings as a JSON file; ``ready`` is one line on stdout. It ends with whoever holds the other end
    of its stdin, however that one ended: a second agent would be started for its node."""
    from pumice.adapters.kube import KubeClient

    path = Path((argv or sys.argv[1:])[0])
    settings = msgspec.json.decode(path.read_bytes(), type=AgentSettings)
    log_to()

    async def serve() -> None:
        stop, ready = told_to_stop(), asyncio.Event()

        def alone() -> None:
            asyncio.get_running_loop().remove_reader(0)
            stop.set()

        asyncio.get_running_loop().add_reader(0, alone)  # nobody writes there
        async with KubeClient.from_kubeconfig(settings.kubeconfig) as kube:
            job = asyncio.create_task(run(settings, cluster=kube, clock=SystemClock(), rng=random.Random(), stop=stop,
                                          ready=ready))  # fmt: skip
            reported = asyncio.create_task(ready.wait())
            await asyncio.wait({job, reported}, return_when=asyncio.FIRST_COMPLETED)
            reported.cancel()
            if ready.is_set():
                print("ready", flush=True)
            await job

    asyncio.run(serve())


def settings_file(settings: AgentSettings) -> Path:
    path = Path(settings.directory, "agent.json")
    path.write_text(json.dumps(asdict(settings)))
    return path


# -- Daemons that are started again: one fault of theirs must not take the cluster or the node down ------------------

RESTART_SECONDS = 1.0


async def supervised(
    name: str, start: Callable[[], Awaitable[None]], *, stop: asyncio.Event, clock: Clock, log: logging.Logger
) -> None:
    """Run a daemon until it returns or ``stop``; one that fails is started again a little later, and ``log`` says why."""
    while not stop.is_set():
        try:
            await start()
            return
        except PumiceError as error:
            log.error("%s: %s", name, error)
        except Exception:
            log.exception("%s failed", name)
        await first(stop.wait(), clock.sleep(RESTART_SECONDS))


if __name__ == "__main__":
    main()
