"""Looks at one node, once: driver, runtime, files, kubelet, cluster, regions and processes. Changes nothing."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import socket
import tomllib
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp

from pumice.adapters.bookings.claims import held_by_claims
from pumice.adapters.bookings.foreign import SHARED
from pumice.adapters.kubelet.checkpoint import allocated_devices
from pumice.adapters.native import vgpu_library
from pumice.adapters.nvml import NvmlCards
from pumice.adapters.owners import ProcOwners
from pumice.apps.monitor.accounts import accounts_of
from pumice.apps.monitor.daemon import Settings as MonitorSettings
from pumice.apps.monitor.reader import ContainerUsage, DriverWatch, NodeReader
from pumice.apps.node.files import digests
from pumice.apps.service.device_config import spaces
from pumice.apps.service.own_node import OwnNode
from pumice.apps.service.worker import once
from pumice.devices.nvidia_vgpu.node.answer import NAMES, digest, files
from pumice.devices.nvidia_vgpu.node.doctor import sharing_of
from pumice.devices.nvidia_vgpu.node.doctor_facts import ContainerState, NodeFacts, PluginPod, Runtime
from pumice.model.errors import BadInput
from pumice.node.findings import ConfigText
from pumice.ports.cards import CardsUnavailable
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.mps import PROGRAM
from pumice.wire import cdi, names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.kinds import CONFIGMAPS, PODS

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds for each of those who are asked: a driver or an API server that does not answer is a finding, too."""
OURS = ("volcano-vgpu", "volcano-device-plugin", names.VGPU_NUMBER, "pumice")


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of what is looked at: ``root`` is the host's, ``metrics`` the monitor's address."""

    name: str
    hook: Path = Path("/usr/local/vgpu")
    kubelet: Path = Path("/var/lib/kubelet/device-plugins")
    root: Path = Path("/")
    node_config: Path = Path("/config/config.json")
    nvml: str = ""
    namespace: str = ""
    metrics: str = "http://127.0.0.1:9394/metrics"
    library: Path | None = None
    mps_root: Path = Path("/run/nvidia/mps")


async def look(places: Places, cluster: Cluster | None, clock: Clock, why_not: str = "") -> NodeFacts:
    """Return the findings. Without a ``cluster`` (``why_not``) those that need one are unknown."""
    library = places.library or vgpu_library()
    facts = NodeFacts(
        places.name,
        runtimes=tuple(runtimes(places.root)),
        api_error=why_not,
        kubelet=str(places.kubelet),
        kubelet_listens=_listens(places.kubelet / "kubelet.sock"),
        hook=str(places.hook),
        files=digests(places.hook, NAMES),
        wanted={name: digest(content) for name, (content, _) in files(library.read_bytes()).items()} if library.is_file() else {},
        devices_file=_devices_file(places.root),
        shares=len(list((places.root / "var/run/cdi").glob(cdi.share_file_name("*")))),
        claimed=held_by_claims([places.root / one.relative_to("/") for one in SHARED]),
        page_at=places.metrics,
        mps_program=shutil.which(PROGRAM) is not None,
        mps_root=str(places.mps_root),
        mps_shm=_same(Path("/dev/shm"), places.mps_root / "shm"),
    )
    facts = await _with_driver(facts, places)
    facts = await _with_page(facts, places)
    if cluster is None:
        return facts
    try:
        return await _with_cluster(facts, places, cluster, clock)
    except (ApiError, TimeoutError, OSError) as error:
        return replace(facts, api_error=f"the API server does not answer: {error or f'nothing came within {PATIENCE:g} s'}")


async def _with_driver(facts: NodeFacts, places: Places) -> NodeFacts:
    def ask() -> NodeFacts:
        with closing(NvmlCards(places.nvml)) as cards:
            return replace(facts, driver=cards.driver_version(), cards=cards.facts())

    try:
        return await _in_time(lambda: once("nvml", ask))
    except CardsUnavailable as error:
        return replace(facts, driver_error=str(error))
    except TimeoutError:
        return replace(facts, driver_error=f"the driver has not answered for {PATIENCE:g} s: a card is sick (dmesg | grep Xid)")


async def _with_page(facts: NodeFacts, places: Places) -> NodeFacts:
    async def ask() -> NodeFacts:
        async with aiohttp.ClientSession() as session, session.get(places.metrics) as answer:
            answer.raise_for_status()
            return replace(facts, page=await answer.text())

    try:
        return await _in_time(ask)
    except (aiohttp.ClientError, ValueError, TimeoutError) as error:
        return replace(facts, page_error=str(error) or f"nothing came within {PATIENCE:g} s")


async def _with_cluster(facts: NodeFacts, places: Places, cluster: Cluster, clock: Clock) -> NodeFacts:
    device = await _in_time(lambda: _device_config(places, cluster))
    facts = replace(facts, device_config=device, node_config=await _node_config(places, cluster))
    facts = replace(facts, plugins=await _in_time(lambda: _plugins(places.name, cluster)))
    own = OwnNode(cluster, places.name, clock=clock, rng=random.Random(), component="pumice-doctor")
    watches = [asyncio.create_task(task) for task in own.tasks()]
    try:
        for synced in (own.pods_synced, own.node_synced):
            await _in_time(synced.wait)
        if own.node is None:
            return replace(facts, api_error=f"the cluster has no node {places.name}")
        allocated = allocated_devices(places.kubelet, sharing_of(facts).number)
        return await _with_holdings(replace(facts, node=own.node, pods=own.pods, allocated=allocated), places, own, clock)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def _with_holdings(facts: NodeFacts, places: Places, own: OwnNode, clock: Clock) -> NodeFacts:
    """Regions and processes, by the monitor's own reader and books."""
    config = NvidiaConfig()
    if facts.device_config is not None and facts.device_config.text is not None:
        with suppress(BadInput):
            config = parse_device_config(facts.device_config.text).nvidia
    folders = MonitorSettings(places.name, hook_path=places.hook).folders
    reader = NodeReader(lambda: folders, own, config)
    driver = DriverWatch(lambda: NvmlCards(places.nvml), None, clock)
    try:
        snapshot, seen = await reader.snapshot(), await driver.look()
    finally:
        reader.close()
        driver.close()
    accounts = await accounts_of(snapshot, seen, ProcOwners(), {pod.uid: pod for pod in own.pods if not pod.finished})
    published = own.node.metadata.annotations.get(names.HANDED_OUT, "") if own.node is not None else ""
    return replace(
        facts,
        handed=dict(line.split(" ", 1) for line in published.splitlines() if " " in line),
        container_states=tuple(_container_state(usage) for usage in snapshot.usages.values() if usage.of is None),
        unaccounted=tuple(accounts.unaccounted()),
    )


def _container_state(usage: ContainerUsage) -> ContainerState:
    return ContainerState(usage.pod, usage.container.name, usage.devices, usage.report, usage.trouble, usage.ended)


async def _device_config(places: Places, cluster: Cluster) -> ConfigText:
    for space in spaces(places.namespace):
        try:
            found = await cluster.get(CONFIGMAPS, names.DEVICE_CONFIGMAP, space)
        except ApiError as error:
            if error.code in (403, 404):
                continue
            raise
        return ConfigText(f"{space}/{names.DEVICE_CONFIGMAP}", (found.get("data") or {}).get(names.DEVICE_CONFIG_KEY, ""))
    return ConfigText(f"{spaces(places.namespace)[0]}/{names.DEVICE_CONFIGMAP}", None)


async def _node_config(places: Places, cluster: Cluster) -> ConfigText:
    """As the plugin has it mounted, else as it stands in the cluster."""
    if places.node_config.is_file():
        return ConfigText(str(places.node_config), places.node_config.read_text("utf-8", "replace"))
    where = f"ConfigMap kube-system/{names.NODE_CONFIGMAP}"
    try:
        found = await _in_time(lambda: cluster.get(CONFIGMAPS, names.NODE_CONFIGMAP, "kube-system"))
    except ApiError:
        return ConfigText(where, None)
    return ConfigText(where, (found.get("data") or {}).get(places.node_config.name))


async def _plugins(node: str, cluster: Cluster) -> tuple[PluginPod, ...]:
    listed = await cluster.list(PODS, field_selector=f"spec.nodeName={node}")
    return tuple(pod for item in listed.get("items", ()) if (pod := _plugin(item)) is not None)


def _plugin(pod: dict[str, Any]) -> PluginPod | None:
    """Return whether it has the kubelet's folder of plugins mounted, and whose it seems to be by its own words."""
    spec, meta = pod.get("spec") or {}, pod["metadata"]
    paths = [(volume.get("hostPath") or {}).get("path", "") for volume in spec.get("volumes") or ()]
    if not any(path.rstrip("/").endswith("/kubelet/device-plugins") for path in paths):
        return None
    containers = spec.get("containers") or ()
    images = ", ".join(str(container.get("image", "")) for container in containers)
    words = [meta["name"], images, *(word for c in containers for word in (*(c.get("command") or ()), *(c.get("args") or ())))]
    ours = any(mark in str(word) for word in words for mark in OURS)
    return PluginPod(f"{meta.get('namespace', 'default')}/{meta['name']}", images, ours)


def _same(one: Path, other: Path) -> bool:
    with suppress(OSError):
        return one.samefile(other)
    return False


def _devices_file(root: Path) -> ConfigText | None:
    path = root / "var/run/cdi" / cdi.file_name()
    with suppress(OSError):
        return ConfigText(str(path), path.read_text("utf-8", "replace"))
    return None


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as knock:
        knock.settimeout(1.0)
        try:
            knock.connect(str(path))
        except OSError:
            return False
        return True


async def _in_time(ask: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await ask()


# -- The container runtimes' configurations ---------------------------------------------------------------------------

# Does one know NVIDIA's runtime, and is that the default? Docker: dockerd's daemon.json. containerd: the CRI plugin's table,
# whose name changed with version 3 of its configuration (containerd docs/cri/config.md). CRI-O: crio.conf(5). All of them are
# what ``nvidia-ctk runtime configure`` writes.

DOCKER: Final = Path("etc/docker/daemon.json")
CONTAINERD: Final = (Path("etc/containerd/config.toml"), Path("etc/containerd/conf.d"))
CRIO: Final = (Path("etc/crio/crio.conf"), Path("etc/crio/crio.conf.d"))
_TABLES: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")


def runtimes(root: Path) -> Iterator[Runtime]:
    """Those that have a configuration below ``root``, the host's."""
    if (path := root / DOCKER).is_file():
        yield _docker(path)
    for program, places, read in (("containerd", CONTAINERD, _containerd), ("crio", CRIO, _crio)):
        if files := list(_files(root, places)):
            yield _merged(program, files, read)


def _files(root: Path, places: Iterable[Path]) -> Iterator[Path]:
    """The file itself, and those of its folder in the order in which they count."""
    for place in places:
        path = root / place
        if path.is_file():
            yield path
        elif path.is_dir():
            yield from sorted(file for file in path.iterdir() if file.suffix in (".toml", ".conf"))


def _docker(path: Path) -> Runtime:
    try:
        document = json.loads(path.read_text("utf-8"))
        known, default = document.get("runtimes") or {}, document.get("default-runtime") or ""
        return Runtime("docker", str(path), "nvidia" in known, str(default))
    except (OSError, ValueError, AttributeError) as error:
        return Runtime("docker", str(path), False, "", f"cannot be read: {error}")


def _merged(program: str, files: list[Path], read: Callable[[dict[str, Any]], tuple[bool, str]]) -> Runtime:
    knows, default, cdi = False, "", True
    for path in files:
        try:
            document = tomllib.loads(path.read_text("utf-8"))
            here, named = read(document)
            cdi = _heeds_cdi(document, cdi)
        except (OSError, ValueError, AttributeError, TypeError) as error:
            return Runtime(program, str(path), False, "", f"cannot be read: {error}")
        knows, default = knows or here, named or default
    return Runtime(program, str(files[0]), knows, default, cdi=cdi)


def _heeds_cdi(document: dict[str, Any], before: bool) -> bool:
    """containerd: off until version 3 of its configuration unless switched on (docs/cri/config.md); CRI-O always does."""
    plugins = document.get("plugins")
    if plugins is None:
        return before
    said = [table["enable_cdi"] for name in _TABLES if "enable_cdi" in (table := plugins.get(name) or {})]
    return bool(said[-1]) if said else int(document.get("version", 1)) >= 3


def _containerd(document: dict[str, Any]) -> tuple[bool, str]:
    plugins = document.get("plugins") or {}
    tables = [(plugins.get(name) or {}).get("containerd") or {} for name in _TABLES]
    return any("nvidia" in (table.get("runtimes") or {}) for table in tables), next(
        (table["default_runtime_name"] for table in tables if table.get("default_runtime_name")), ""
    )


def _crio(document: dict[str, Any]) -> tuple[bool, str]:
    runtime = (document.get("crio") or {}).get("runtime") or {}
    return "nvidia" in (runtime.get("runtimes") or {}), runtime.get("default_runtime") or ""
