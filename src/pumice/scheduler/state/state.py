"""The engine's view of the cluster: pods, PodGroups, queues and nodes, fed by watch events, and the ledger.

Every method is a synchronous function of values. Bad data sets aside the smallest thing: what was refused stands in
``problems`` by object, and everything else goes on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from pumice.devices.protocol import DeviceSharing
from pumice.devices.settings import Settings
from pumice.effects.object_cache import UidTracker
from pumice.scheduler.state.bookings import Bookings
from pumice.scheduler.state.budgets import Budgets, Quotas
from pumice.scheduler.state.classes import Classes, PodClass
from pumice.scheduler.state.domains import HyperNodes
from pumice.scheduler.state.groups import Groups
from pumice.scheduler.state.held_places import HeldPlaces
from pumice.scheduler.state.jobs import Job, QueueState, Task
from pumice.scheduler.state.ledger import Ledger
from pumice.scheduler.state.moves import Moves
from pumice.scheduler.state.nominations import Nominations, Reservations, TerminatingPods
from pumice.scheduler.state.pods import Elsewhere, Pods
from pumice.scheduler.state.queues import Charges
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.scheduler.state.shards import Shards
from pumice.scheduler.state.volumes import Volumes
from pumice.wire.names import DEFAULT_QUEUE, SCHEDULER_NAME


class State:
    """Everything that decisions look at. Each part alone writes what it keeps; events go to the part that they are about:
    ``groups`` (PodGroups, queues, priority classes), ``bookings`` (nodes, namespaces), ``hyper_nodes``, ``pods``,
    ``volumes``, ``device_claims``."""

    def __init__(
        self, *, scheduler_names: frozenset[str] = frozenset({SCHEDULER_NAME}), default_queue: str = DEFAULT_QUEUE,
        implicit_groups: bool = True, names_groups: bool = False,
    ) -> None:  # fmt: skip
        self.problems: dict[str, str] = {}
        self.uids, tasks = UidTracker(), dict[str, Task]()
        self.ledger, self.classes, self.volumes, self.settings = Ledger(), Classes(), Volumes(), Settings()
        """``settings``: the arguments of deviceshare, how much the cards' score counts between nodes."""
        self.shards = Shards(self.ledger.table)
        self.device_claims = self.ledger.device_claims
        self.device_claims.problems, self.classes.wanted = self.problems, self.device_claims.wanted
        self.scheduling_queue, self.budgets = SchedulingQueue(), Budgets(self._leaving)
        self.charges = Charges(self.ledger)
        self.nominations = Nominations(self.ledger, self.scheduling_queue)
        self.elsewhere = Elsewhere(self.ledger.table)
        self.terminating = TerminatingPods(self.scheduling_queue, self.ledger, self.nominations, tasks)
        self.reservations = Reservations(self.ledger, self.scheduling_queue)
        self.moves = Moves(self.ledger, self.scheduling_queue, self.nominations)
        self.held_places = HeldPlaces(self.ledger, self.scheduling_queue, self.problems, tasks)
        self.groups = Groups(
            self.scheduling_queue, self.uids, self.problems, default_queue, implicit_groups, names_groups,
        )  # fmt: skip
        self.quotas = Quotas(self.scheduling_queue)
        self.hyper_nodes = HyperNodes(self.scheduling_queue, self.ledger, self.problems)
        self.bookings = Bookings(
            self.scheduling_queue, self.uids, self.problems, self.ledger, self.classes, self.charges, self.nominations, tasks,
            self.hyper_nodes.nodes_changed, self.shards.seen, self.held_places.put,
        )  # fmt: skip
        self.pods = Pods(
            self.scheduling_queue, self.problems, self.ledger, self.classes, self.charges, self.groups, self.bookings,
            self.nominations, self.terminating, tasks, scheduler_names, self.elsewhere,
        )  # fmt: skip
        self.device_claims.changed, self.device_claims.freed = self.pods.claims_changed, self.pods.claims_freed
        self.device_claims.charged, self.device_claims.stand = self.pods.claims_charged, self._stand
        self.classes.policies = self.groups.policies_for
        self.classes.by_name, self.classes.had_by_claim = self.device_claims.by_name, self.device_claims.had_by_claim
        self.tasks: Mapping[str, Task] = tasks
        self.jobs: Mapping[str, Job] = self.groups.jobs
        self.queues: Mapping[str, QueueState] = self.groups.queues
        self.taint_verdicts: dict[Hashable, Any] = {}
        """The memory of ``plugins.taints`` per list of tolerations."""

    def _leaving(self) -> Iterator[Task]:
        """Pods that go, and whose places are waited for."""
        table = self.ledger.table
        for row in table.releasing_rows:
            for uid in self.ledger.going(table.name(row)):
                if uid in self.tasks:
                    yield self.tasks[uid]

    def set_device_types(self, device_types: Sequence[DeviceSharing], settings: Settings) -> None:
        """Exchange the device types (the configuration or the device ConfigMap changed)."""
        self.settings = settings
        owned = (device_type.resources() | device_type.parameters() for device_type in device_types)
        self.device_claims.own(frozenset().union(*owned))
        self.classes.set_device_types(device_types)
        for queue in self.groups.queues.values():
            queue.recount()
        self.bookings.set_device_types(device_types)
        self.held_places.anew()
        self.pods.reclass()
        self.pods.reclass_placed()

    def _stand(self) -> None:
        """Classes stand for other resources than before: pods that ask for them may be others."""
        self.classes.set_device_types(self.classes.device_types)
        self.pods.reclass()

    def count_images(self, *, counted: bool) -> None:
        """Take over whether some plugin scores by images."""
        if self.classes.images.counted != counted:
            self.classes.images.counted = counted
            self.classes.set_device_types(self.classes.device_types)  # no class is what it was
            self.pods.reclass()

    def count_workloads(self, *, counted: bool) -> None:
        """Take over whether some plugin spreads pods that do not say how."""
        if self.classes.workloads.counted != counted:
            self.classes.workloads.counted = counted
            self.pods.reclass()

    def has_preferences(self, cls: PodClass) -> bool:
        """Return whether some score of this class is relative to the other nodes that fit."""
        return cls.prefers or self.ledger.terms.any_wishing or self.ledger.table.soft_taints > 0
