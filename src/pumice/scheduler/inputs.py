"""The inputs of the engine as values: all that a daemon tells it beside its cycles, in the order in which it does.

Who applies the same inputs to an engine in the same state, and runs the same cycles, has the same engine again: a journal
(``pumice.journal``) keeps them, and ``pumice replay`` plays them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from pumice.devices.protocol import ReportSource
from pumice.model.errors import BadInput
from pumice.scheduler.engine import Engine
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.names import DEFAULT_QUEUE, ROOT_QUEUE
from pumice.wire.objects import ConfigMap, Node, Pod, ResourceQuota, Workload, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.topology import HyperNode
from pumice.wire.volcano import PodGroup, PriorityClass, Queue, default_queue

# -- objects of which the whole counts ---------------------------------------------------------------------------------


class Kind(NamedTuple):
    """The slice of an object that is read (None: it is taken whole), and where it goes when it comes and when it is gone."""

    slice_: type[Any] | None
    put: Callable[[Engine, Any], object]
    drop: Callable[[Engine, Any], object]


def _workload(kind: str) -> Kind:
    """Services and controllers, of which the selectors count."""

    def put(engine: Engine, found: Workload, gone: bool = False) -> None:
        meta, selector = found.metadata, None if gone else found.spec.selector
        engine.state.classes.workloads.put(kind, meta.namespace, meta.name, selector)

    return Kind(Workload, put, partial(put, gone=True))


def _storage(kind: str) -> Kind:
    return Kind(None, lambda e, o: e.state.volumes.put(kind, o), lambda e, o: e.state.volumes.drop(kind, o))


WORKLOADS = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
STORAGE = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity",
           "VolumeAttachment")  # fmt: skip
KINDS: Mapping[str, Kind] = {
    "Namespace": Kind(
        ConfigMap, lambda e, o: e.state.bookings.put_namespace(o.metadata.name, o.metadata.labels),
        lambda e, o: e.state.bookings.put_namespace(o.metadata.name, None)),
    "Node": Kind(
        Node, lambda e, o: e.state.bookings.put_node(o),
        lambda e, o: e.state.bookings.drop_node(o.metadata.name, o.metadata.uid)),
    "PriorityClass": Kind(
        PriorityClass, lambda e, o: e.state.groups.put_priority_class(o),
        lambda e, o: e.state.groups.drop_priority_class(o.metadata.name, o.metadata.uid)),
    "Queue": Kind(
        Queue, lambda e, o: e.state.groups.put_queue(o),
        lambda e, o: e.state.groups.drop_queue(o.metadata.name, o.metadata.uid)),
    "ResourceQuota": Kind(
        ResourceQuota, lambda e, o: e.state.quotas.put(o),
        lambda e, o: e.state.quotas.drop(o.metadata.namespace, o.metadata.name)),
    "HyperNode": Kind(
        HyperNode, lambda e, o: e.state.hyper_nodes.put(o), lambda e, o: e.state.hyper_nodes.drop(o.metadata.name)),
    "PodDisruptionBudget": Kind(None, lambda e, o: e.state.budgets.put(o), lambda e, o: e.state.budgets.drop(o)),
    "PodGroup": Kind(
        PodGroup, lambda e, o: e.state.groups.put_group(o), lambda e, o: e.state.groups.drop_group(o)),
    "ConfigMap": Kind(
        ConfigMap, lambda e, o: _report(e, o), lambda e, o: _report(e, o, gone=True)),
    "DeviceClass": Kind(
        None, lambda e, o: e.state.device_claims.put_class(o), lambda e, o: e.state.device_claims.drop_class(o)),
    "ResourceSlice": Kind(
        None, lambda e, o: e.state.device_claims.put_slice(o), lambda e, o: e.state.device_claims.drop_slice(o)),
    "ResourceClaim": Kind(
        None, lambda e, o: e.state.device_claims.put_claim(o), lambda e, o: e.state.device_claims.drop_claim(o)),
    **{kind: _workload(kind) for kind in WORKLOADS},
    **{kind: _storage(kind) for kind in STORAGE},
}  # fmt: skip
"""All but pods. ConfigMaps are those in which others report what nodes have."""


def sources_of(engine: Engine) -> tuple[ReportSource, ...]:
    """The reports that the device types in force read."""
    return tuple(dict.fromkeys(source for device_type in engine.device_types for source in device_type.reports))


def _report(engine: Engine, found: ConfigMap, gone: bool = False) -> None:
    for source in sources_of(engine):
        if source.names(found):
            where = f"{found.metadata.namespace}/{found.metadata.name}"
            engine.state.bookings.put_report(where, None if gone else source.read(found))


def put_first_queues(engine: Engine) -> None:
    """Put the root and the default queue, as the scheduler makes them where there are none."""
    for name, reclaimable in ((ROOT_QUEUE, False), (DEFAULT_QUEUE, True)):
        engine.state.groups.put_queue(convert(Queue, default_queue(name, reclaimable=reclaimable)))


# -- inputs ------------------------------------------------------------------------------------------------------------


class Input(Struct, array_like=True, gc=False):
    """One input. ``apply`` returns what the engine answers."""

    def apply(self, engine: Engine) -> Any:
        raise NotImplementedError


class Put(Input, array_like=True, tag="put", gc=False):
    """An object was added or changed."""

    kind: str
    obj: Any

    def apply(self, engine: Engine) -> Any:
        return KINDS[self.kind].put(engine, self.obj)


class Drop(Input, array_like=True, tag="drop", gc=False):
    """An object is gone, or takes part no more."""

    kind: str
    obj: Any

    def apply(self, engine: Engine) -> Any:
        return KINDS[self.kind].drop(engine, self.obj)


class PutPod(Input, array_like=True, tag="pod", gc=False):
    """A pod was added or changed. ``now`` is of the clock that is never set, here and below."""

    pod: Pod
    now: float

    def apply(self, engine: Engine) -> Any:
        return engine.state.pods.put(self.pod, self.now)


class DropPod(Input, array_like=True, tag="gone", gc=False):
    """A pod is gone."""

    pod: Pod

    def apply(self, engine: Engine) -> Any:
        return engine.state.pods.drop(self.pod)


class ForgetReports(Input, array_like=True, tag="forget", gc=False):
    """Nobody follows the reports of others any more."""

    def apply(self, engine: Engine) -> Any:
        return engine.state.bookings.forget_reports()


class BeginFile(Input, array_like=True, tag="begin", gc=False):
    """A file of the journal begins: what no snapshot keeps is worked out again, searches left for the next cycle, too."""

    def apply(self, engine: Engine) -> Any:
        return engine.placer.drop_arrays()


class Configure(Input, array_like=True, tag="conf", gc=False):
    """A configuration is taken, or refused. ``devices`` None: there is no device configuration."""

    conf: str
    source: str
    strict: bool
    devices: str | None

    def apply(self, engine: Engine) -> Any:
        with contextlib.suppress(BadInput):
            conf = parse_scheduler_conf(self.conf, source=self.source, strict=self.strict)
            devices = None if self.devices is None else parse_device_config(self.devices)
            engine.configure(conf, devices, strict=self.strict)


class Lacking(Input, array_like=True, tag="lacking", gc=False):
    """The API server does not serve a list of ``resource.k8s.io``, or not to us, and its answer; empty: it does."""

    name: str
    answer: str

    def apply(self, engine: Engine) -> Any:
        return engine.state.device_claims.lacks(self.name, self.answer)


class Sharded(Input, array_like=True, tag="sharded", gc=False):
    """Schedulers share the cluster: whose the nodes are, on which of them this one may place, and among whom jobs are divided."""

    mine: str
    peers: tuple[str, ...]
    owner: dict[str, str]
    ours: tuple[str, ...]
    soft: bool = False

    def apply(self, engine: Engine) -> Any:
        state = engine.state
        if not state.shards.mine:
            engine.placer.forget()  # what was kept was scored without
        state.shards.put(self.mine, self.peers, self.owner, self.ours, soft=self.soft)
        for queue in state.queues.values():
            queue.active.start_over()
        state.scheduling_queue.released()
        state.scheduling_queue.cycle_at(0.0)


class QueueNamed(Input, array_like=True, tag="queue", gc=False):
    """A queue is known by its name from now on, and why the API server refused to make it, if it did."""

    name: str
    refused: str = ""

    def apply(self, engine: Engine) -> Any:
        found = engine.state.groups.queue(self.name)
        found.uncreated = self.refused or found.uncreated
        return found


class Bound(Input, array_like=True, tag="bound", gc=False):
    """A Binding was accepted."""

    uid: str

    def apply(self, engine: Engine) -> Any:
        return engine.bound(self.uid)


class BindFailed(Input, array_like=True, tag="failed", gc=False):
    """A Binding was refused."""

    uid: str
    now: float

    def apply(self, engine: Engine) -> Any:
        return engine.bind_failed(self.uid, self.now)


class HoldBack(Input, array_like=True, tag="hold", gc=False):
    """A gang could not be bound as a whole."""

    job: str
    cause: str
    now: float

    def apply(self, engine: Engine) -> Any:
        return engine.hold_back(engine.state.jobs[self.job], self.cause, self.now)


class Evicting(Input, array_like=True, tag="evicting", gc=False):
    """A pod is evicted though no cycle said so."""

    uid: str

    def apply(self, engine: Engine) -> Any:
        return engine.state.terminating.evicting(self.uid)


class EvictionRefused(Input, array_like=True, tag="stays", gc=False):
    """The API server refused to evict a pod."""

    uid: str
    now: float

    def apply(self, engine: Engine) -> Any:
        return engine.state.terminating.refused(self.uid, self.now)


class GateStays(Input, array_like=True, tag="gate", gc=False):
    """A scheduling gate could not be taken off."""

    uid: str
    now: float

    def apply(self, engine: Engine) -> Any:
        return engine.state.pods.gate_stays(self.uid, self.now)
