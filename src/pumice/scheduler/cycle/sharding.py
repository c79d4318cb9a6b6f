"""Jobs that are left to the schedulers of other shards (``state/shards.py``).

A job is for one of the shards that could hold it if they were empty: its gang has to find places there, and its pods nodes that
they tolerate and select. Its key decides among these.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pumice.devices.protocol import DeviceRequest
from pumice.model.refusal import FitError
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.plugins.contract import Part
from pumice.scheduler.state.cards import DeviceTable
from pumice.scheduler.state.classes import PodClass
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.node_devices import NodeDevices
from pumice.scheduler.state.scheduling_queue import QueueEvent
from pumice.scheduler.state.shards import ShardCapacity
from pumice.scheduler.state.tasks import Status, by_gang

LOOK_AGAIN: Final = 30.0
"""Seconds between two looks at what shards could hold, where nothing but the nodes changed; and after which a gang that no shard
can hold is looked at again."""
MOST_ON_A_NODE: Final = 256
"""Pods of one class that are counted on one node's cards."""
KEPT: Final = 4096


def look_again(cycle: Cycle) -> None:
    """A cycle begins: where whose a node is, or what the nodes are, has changed, ask again whose the jobs are that were left to
    others, as far as the time allows."""
    shards, queue, begin = cycle.state.shards, cycle.state.scheduling_queue, cycle.tick()
    if not shards.mine or not shards.elsewhere:
        return
    seen = shards.version, cycle.state.ledger.table.version
    if seen != shards.looked_at and cycle.now >= shards.look_again:
        shards.looked_at, shards.look_again = seen, cycle.now + LOOK_AGAIN
        shards.doubted = dict.fromkeys(shards.elsewhere)
    for job in list(shards.doubted):
        shards.doubted.pop(job)
        if not job.known:
            shards.take(job)
        elif keeper(cycle, job) == shards.mine:
            shards.take(job)
            queue.activate(job)
        if cycle.past(begin, 0.1):
            break
    if shards.doubted:
        queue.cycle_at(cycle.now)
    else:
        queue.cycle_at(cycle.now + LOOK_AGAIN if seen == shards.looked_at else shards.look_again)


def leaves(cycle: Cycle, job: Job) -> bool:
    """Return whether the job is not tried here: another shard's scheduler takes it, which says why it waits."""
    shards = cycle.state.shards
    if not shards.divide:
        return False
    shard = keeper(cycle, job)
    if shard == shards.mine:
        shards.take(job)
        return False
    shards.leave_to(job, shard)
    job.refusal = by_gang(f"it is for the scheduler of shard {shard}")
    cycle.state.scheduling_queue.rest(job, QueueEvent.INVALID)
    return True


def speaks_for(cycle: Cycle, job: Job) -> bool:
    """Return whether it is this scheduler that says how the job stands."""
    shards = cycle.state.shards
    return not shards.divide or keeper(cycle, job) == shards.mine


def too_wide(cycle: Cycle, job: Job) -> str:
    """Return why no shard can hold the job's gang, though one of its pods may find a place in some; empty where one can."""
    shards, need = cycle.state.shards, _need(job)
    if not shards.mine or shards.soft or need < 2 or job.ready_count or len(_waiting(job)) < need:
        return ""
    places = {peer: _places(cycle, job, peer) for peer in shards.peers}
    if not any(places.values()) or max(places.values()) >= need:
        return ""
    parts = ", ".join(f"shard {peer} for {count}" for peer, count in places.items())
    return f"its gang of {need} is wider than a shard: when empty there is room in {parts}"


def keeper(cycle: Cycle, job: Job) -> str:
    """The shard whose scheduler takes the job."""
    shards = cycle.state.shards
    if not shards.divide:
        return shards.mine
    if begun := shards.begun(job):
        return begun
    need = min(_need(job), len(_waiting(job))) or 1
    return shards.keeper(job, (peer for peer in shards.peers if _places(cycle, job, peer) >= need))


def _need(job: Job) -> int:
    """Return how many pods more its gang needs to stand. What it has on trial, over several cycles perhaps, counts as nothing,
    here and below: the other schedulers do not see it, and have to come to the same answer."""
    return max(1, job.min_available - (job.ready_count - job.counts[Status.ALLOCATED]))


def _waiting(job: Job) -> list[Task]:
    """Return its pods that have no node but on trial."""
    if len(job.pending) == len(job.tasks):
        return list(job.pending.values())
    return [task for task in job.tasks.values() if task.status in (Status.PENDING, Status.ALLOCATED, Status.PIPELINED)]


def _places(cycle: Cycle, job: Job, peer: str) -> int:
    """Return for how many of its pods, class by class, a shard would have room if it were empty."""
    counts = Counter(task.cls for task in _waiting(job))
    return sum(min(count, _room(cycle, cls).get(peer, 0)) for cls, count in counts.items())


def _room(cycle: Cycle, cls: PodClass) -> dict[str, int]:
    """Return for how many pods of a class the nodes of each peer would have room if they were empty."""
    shards, version = cycle.state.shards, (cycle.state.shards.version, cycle.state.ledger.table.version)
    found = shards.capacities.get(cls)
    if found is None or found.version[0] != version[0] or (
        found.version != version and cycle.now - found.counted_at >= LOOK_AGAIN
    ):
        if len(shards.capacities) >= KEPT:
            shards.capacities.clear()
        found = shards.capacities[cls] = ShardCapacity(cycle.now, version, shards.by_peer(_slots(cycle, cls)))
    return dict(found.by_shard)


def _slots(cycle: Cycle, cls: PodClass) -> NDArray[np.int64]:
    """Count, per node, the pods of a class that it takes when nothing else is there."""
    ledger, shards = cycle.state.ledger, cycle.state.shards
    table = ledger.table
    slots = np.where(table.live, len(cycle.state.tasks) + 1, 0).astype(np.int64)
    for column, amount in ledger.columns(cls.request):
        if amount > 0:
            slots = np.minimum(slots, table.alloc[:, column] // amount)
    shards.lifted = True
    try:
        for verdict in cycle.framework.verdicts(cycle.state, cls, None, Part.NODE):
            if verdict.final:
                slots[verdict.failed] = 0
    finally:
        shards.lifted = False
    for device_request in cls.device_requests:
        device_table = ledger.device_tables[device_request.device_type]
        slots = np.minimum(slots, _on_cards(device_table, device_request, table.row_of, slots))
    return slots


def _on_cards(
    device_table: DeviceTable, device_request: DeviceRequest, row_of: dict[str, int], slots: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The same by a node's cards; nodes with equal cards are looked at once."""
    found = np.zeros(len(slots), np.int64)
    known: dict[object, int] = {}
    for name, row in row_of.items():
        node_devices = device_table.nodes.get(name)
        if node_devices is None or not slots[row]:
            continue
        kind = node_devices.facts, device_table.kind_of(node_devices.inventory)
        count = known.get(kind) if kind[1] is not None else None
        if count is None:
            count = known[kind] = _on_empty(device_table, device_request, name)
        found[row] = count
    return found


def _on_empty(device_table: DeviceTable, device_request: DeviceRequest, name: str) -> int:
    """Return how many pods with this request the cards of a node take when nothing else is there."""
    empty, count = NodeDevices.empty(name, device_table.nodes[name].inventory), 0
    while count < MOST_ON_A_NODE:
        fit = device_table.device_type.fit(device_request, empty.view())
        if isinstance(fit, FitError):
            break
        count += 1
        empty.charge(str(count), fit.allocation)
    return count
