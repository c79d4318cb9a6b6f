"""The snapshot of a running cluster, or of a file: what ``explain``, ``fits``, ``dump`` and ``top`` answer from."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumice.adapters.kube import KubeClient
from pumice.cli.cluster_snapshot import KINDS_KEPT, REPORTS, SLICES, ClusterSnapshot, engine_of, load, trimmed
from pumice.cli.daemon import access_to_ask
from pumice.devices.settings import Settings
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cluster import ApiError, Cluster, Resource
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import sources_of
from pumice.wire import kinds, names
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.kubernetes import DEVICES
from pumice.wire.objects import ConfigMap
from pumice.wire.scheduler_conf import DEFAULT_CONF, parse_scheduler_conf
from pumice.wire.share_hours import DAY, config_map_of


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a snapshot: a file, or a cluster and the names of its configuration."""

    file: Path | None = None
    kubeconfig: Path | None = None
    configmap: str = f"{names.SYSTEM_NAMESPACE}/{names.SCHEDULER_CONFIGMAP}"
    scheduler_names: tuple[str, ...] = ()
    runs: bool = False
    """True for a snapshot with how long pods ran (``ClusterSnapshot.runs``)."""


def take_snapshot(source: Source) -> ClusterSnapshot:
    """Load or collect, and say what is remarkable about it. Raises BadInput or Unavailable with one line."""
    if source.file is not None:
        snapshot = load(source.file)
    else:
        try:
            snapshot = asyncio.run(_collect(source))
        except ApiError as error:
            silent = f"({error.message}); of `pumice up`, `pumice status` says whether it runs"
            raise Unavailable(f"the API server does not answer {f'as expected: {error}' if error.code else silent}") from None
    snapshot.scheduler_names = list(source.scheduler_names) or snapshot.scheduler_names
    for remark in snapshot.remarks:
        print(remark, file=sys.stderr)
    return snapshot


async def _collect(source: Source) -> ClusterSnapshot:
    async with KubeClient(access_to_ask(source.kubeconfig)) as kube:
        return await collect(kube, source.configmap, runs=source.runs)


async def refreshed(kube: Cluster, source: Source) -> ClusterSnapshot:
    """The snapshot of the cluster as it is now, by the same client."""
    snapshot = await collect(kube, source.configmap, runs=source.runs)
    snapshot.scheduler_names = list(source.scheduler_names) or snapshot.scheduler_names
    return snapshot


async def collect(kube: Cluster, configmap: str, *, runs: bool = False) -> ClusterSnapshot:
    """Read everything a decision looks at, with ``runs`` how long pods ran, too. Kinds that the cluster does not have are
    empty."""
    snapshot = await configuration(kube, configmap)
    for key, (resource, _) in KINDS_KEPT.items():
        if resource is not kinds.CONFIGMAPS:
            remarks = snapshot.remarks if resource.group == DEVICES else None
            snapshot.objects[key] = [trimmed(item, SLICES[key]) for item in await _list(kube, resource, remarks=remarks)]
    engine = engine_of(ClusterSnapshot(snapshot.now, snapshot.scheduler_conf, snapshot.device_config))
    snapshot.objects[REPORTS] = [
        trimmed(item, ConfigMap)
        for source in sources_of(engine)
        for item in await _list(kube, kinds.CONFIGMAPS, source.namespace, source.label, snapshot.remarks)
    ]
    today = int(snapshot.now // DAY)
    for number in range(today, today - RUNS_OF_DAYS, -1) if runs else ():
        record = await _data(kube, f"{configmap.partition('/')[0]}/{config_map_of(number)}", [], needed=False)
        snapshot.runs += str((record or {}).get("runs", "")).splitlines()
    return snapshot


async def configuration(kube: Cluster, configmap: str) -> ClusterSnapshot:
    """Read what the scheduler goes by, in a snapshot that has no objects yet. Raises BadInput and ApiError."""
    snapshot = ClusterSnapshot(now=time.time())
    snapshot.scheduler_conf, settings = await _scheduler_conf(kube, configmap, snapshot.remarks)
    kept = await _kept(kube, configmap)
    snapshot.scheduler_names = kept.get(names.SCHEDULER_NAMES_KEY, "").split() or snapshot.scheduler_names
    where = f"{settings.configmap_namespace}/{settings.configmap}"
    snapshot.device_config = await _device_config(kube, where, configmap, snapshot.remarks)
    return snapshot


RUNS_OF_DAYS = 14
"""Of the record: older runs tell little of those of today."""


async def _list(
    kube: Cluster, resource: Resource, namespace: str = "", label: str = "", remarks: list[str] | None = None
) -> list[dict[str, Any]]:
    """All of a kind, of one namespace and label where such are given; none where the cluster does not know the kind. Where there
    are ``remarks``, what may not be read is one of them."""
    try:
        return (await kube.list(resource, namespace, label_selector=label)).get("items") or []
    except ApiError as error:
        if error.code == 403 and remarks is not None:
            effect = "pods with claims cannot be judged here"
            if resource is kinds.RESOURCE_CLAIM_TEMPLATES:
                effect = "pods that are yet to come ask as the claims here"
            remarks.append(
                f"ConfigMaps labelled {label} may not be read with these credentials; their nodes say nothing here" if label
                else f"{resource.plural} may not be read with these credentials; {effect}"
            )  # fmt: skip
        elif error.code != 404:
            raise
    return []


async def _scheduler_conf(kube: Cluster, where: str, remarks: list[str]) -> tuple[str, Settings]:
    """The configuration that the scheduler goes by: the one that stands there, else the last that it could use, else, where
    none stands there, the built-in one. Raises BadInput."""
    data = await _data(kube, where, remarks)
    if data is None:
        return DEFAULT_CONF, Settings()
    try:
        if names.SCHEDULER_CONF_KEY not in data:
            raise BadInput(f"it has no key {names.SCHEDULER_CONF_KEY}")
        text = str(data[names.SCHEDULER_CONF_KEY])
        return text, Engine(parse_scheduler_conf(text)).settings
    except BadInput as error:
        good = await _last_good(kube, where, f"ConfigMap {where} is refused: {error}", remarks)
        text = good[names.SCHEDULER_CONF_KEY]
        return text, Engine(parse_scheduler_conf(text)).settings


async def _device_config(kube: Cluster, where: str, beside: str, remarks: list[str]) -> str:
    """The device configuration that the scheduler goes by; empty where there is none. Raises BadInput."""
    text = str((await _data(kube, where, remarks, needed=False) or {}).get(names.DEVICE_CONFIG_KEY, ""))
    try:
        if text:
            parse_device_config(text)
        return text
    except BadInput as error:
        good = await _last_good(kube, beside, f"ConfigMap {where} is refused: {error}", remarks)
        return good.get(names.DEVICE_CONFIG_KEY, "")


async def _last_good(kube: Cluster, where: str, refusal: str, remarks: list[str]) -> dict[str, str]:
    """Return the last good configuration that the scheduler recorded. Raises BadInput where there is none."""
    kept = await _kept(kube, where)
    if names.SCHEDULER_CONF_KEY not in kept:
        raise BadInput(f"{refusal}; no last good one is known to answer by, and a scheduler that is started now places nothing")
    remarks.append(f"{refusal}; answering by the last good one. The scheduler goes by it too, unless it was started since: "
                   "then it places nothing")  # fmt: skip
    return kept


async def _kept(kube: Cluster, where: str) -> dict[str, str]:
    """Return the record of the scheduler that follows that ConfigMap; nothing where there is none of ours."""
    kept = await _data(kube, f"{where}{names.LAST_GOOD}", [], needed=False) or {}
    return {key: str(text) for key, text in kept.items()}


async def _data(kube: Cluster, where: str, remarks: list[str], *, needed: bool = True) -> dict[str, Any] | None:
    """Return the data of a ConfigMap; None when it is missing or may not be read, which is remarked where it is ``needed``: an
    answer from the defaults may differ from the scheduler's."""
    namespace, _, name = where.partition("/")
    try:
        found = await kube.get(kinds.CONFIGMAPS, name, namespace)
    except ApiError as error:
        if error.code == 403:
            remarks.append(f"ConfigMap {where} may not be read with these credentials; answering from the defaults")
        elif error.code != 404:
            raise
        elif needed:
            remarks.append(f"there is no ConfigMap {where}; answering by the built-in configuration")
        return None
    return found.get("data") or {}
