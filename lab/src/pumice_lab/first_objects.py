"""Objects of a new cluster before its first pod: Volcano's kinds, namespaces, and the configuration of the scheduler.

Only what is missing is made; what somebody has changed stays as it is.
"""

from __future__ import annotations

import asyncio
import json
from importlib.resources import files

from pumice.model.errors import Unavailable
from pumice.ports.cluster import ApiError, Cluster, Json, Resource
from pumice.wire import names, volcano
from pumice.wire.document import safe_load
from pumice.wire.kinds import CONFIGMAPS, CRDS, NAMESPACES, STORAGE_CLASSES
from pumice.wire.kubernetes import LAST_APPLIED
from pumice.wire.objects import holds
from pumice_lab.controllers.storage import standard_class
from pumice_lab.spec import ClusterSpec

ESTABLISHED_SECONDS = 20.0

SCHEDULER_CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: true
      deviceshare.SchedulePolicy: lookahead
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
"""
_VGPU = "      deviceshare.VGPUEnable: true\n"
WITH_NPUS = SCHEDULER_CONF.replace(_VGPU, f"{_VGPU}      deviceshare.AscendHAMiVNPUEnable: true\n")
"""Of a cluster that emulates NPUs: it shares what it emulates."""


async def ensure(kube: Cluster, spec: ClusterSpec) -> None:
    """Make what is missing and wait until Volcano's kinds are served. Raises Unavailable when they are not."""
    kinds = volcano_kinds()
    for kind in kinds:
        await _create(kube, CRDS, kind)
    if spec.control_plane == "embedded":  # its controllers make the volumes
        await _create(kube, STORAGE_CLASSES, standard_class())
    if not spec.bare:
        await _configuration(kube, WITH_NPUS if any(node.npus for node in spec.nodes) else SCHEDULER_CONF)
    try:
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            for kind in kinds:
                while not holds(await kube.get(CRDS, kind["metadata"]["name"]), "Established"):
                    await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise Unavailable(f"the API server does not serve Volcano's kinds after {ESTABLISHED_SECONDS:.0f} s") from error
    if not spec.bare:  # the controller makes them too; a first Job may come before that, and the admission asks for its queue
        for name, reclaimable in ((names.ROOT_QUEUE, False), (names.DEFAULT_QUEUE, True)):
            await _create(kube, volcano.QUEUES, volcano.default_queue(name, reclaimable=reclaimable))


async def _configuration(kube: Cluster, conf: str) -> None:
    """Where the scheduler is told nothing, or still what an earlier start of this cluster told it."""
    await _create(kube, NAMESPACES, {"metadata": {"name": names.SYSTEM_NAMESPACE}})
    wanted = _as_applied({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": names.SCHEDULER_CONFIGMAP, "namespace": names.SYSTEM_NAMESPACE},
        "data": {names.SCHEDULER_CONF_KEY: conf},
    })  # fmt: skip
    found = await _create(kube, CONFIGMAPS, wanted)
    if found is not None and (found.get("data") or {}).get(names.SCHEDULER_CONF_KEY) in {SCHEDULER_CONF, WITH_NPUS} - {conf}:
        await kube.patch(CONFIGMAPS, names.SCHEDULER_CONFIGMAP, wanted, names.SYSTEM_NAMESPACE)
    await _create(kube, CONFIGMAPS, {
        "metadata": {"name": f"{names.SCHEDULER_CONFIGMAP}{names.LAST_GOOD}", "namespace": names.SYSTEM_NAMESPACE},
    })  # fmt: skip


def _as_applied(obj: Json) -> Json:
    """As `kubectl apply` leaves it, so that a user's own text is applied over it without a warning."""
    return {**obj, "metadata": {**obj["metadata"], "annotations": {LAST_APPLIED: json.dumps(obj)}}}


def volcano_kinds() -> list[Json]:
    """The CustomResourceDefinitions that are shipped with the package."""
    folder = files("pumice") / "manifests" / "crds"
    return [safe_load(entry.read_text()) for entry in sorted(folder.iterdir(), key=lambda e: e.name)
            if entry.name.endswith(".yaml")]  # fmt: skip


async def _create(kube: Cluster, resource: Resource, obj: Json) -> Json | None:
    """Create what is missing, or return what is there. A webhook that is not up yet would be asked before a creation is found
    to be one too many."""
    try:
        return await kube.get(resource, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
    except ApiError as error:
        if error.code != 404:
            raise
    try:
        await kube.create(resource, obj)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    return None
