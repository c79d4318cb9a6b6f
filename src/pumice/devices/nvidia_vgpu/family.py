"""The vGPU family as a family: each method is one step of the protocol, told elsewhere in this folder."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from pumice.devices.nvidia_vgpu import written
from pumice.devices.nvidia_vgpu.arguments import VgpuArguments
from pumice.devices.nvidia_vgpu.ask import STEERING, UNSET, VgpuAsk, constraints_of, containers_of
from pumice.devices.nvidia_vgpu.assignment import Statement, statement
from pumice.devices.nvidia_vgpu.draft import Draft
from pumice.devices.nvidia_vgpu.fit import fit_node, hopeless
from pumice.devices.nvidia_vgpu.inventory import inventory_of
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue
from pumice.devices.nvidia_vgpu.mig_policy import chooser
from pumice.devices.nvidia_vgpu.misfit import explain_node, no_devices
from pumice.devices.nvidia_vgpu.planning import VgpuPlanner
from pumice.devices.nvidia_vgpu.quota import VgpuLateQuota, quota_of
from pumice.devices.nvidia_vgpu.ranking import VgpuRanking
from pumice.devices.nvidia_vgpu.replay import replay_pod
from pumice.devices.nvidia_vgpu.search import STEPS
from pumice.devices.protocol import Ask, Family, Fit, Inventory, Marks, NodeCards, Series, Tunables
from pumice.devices.rules import matching_rules
from pumice.devices.settings import Settings
from pumice.model.cards import Grant
from pumice.model.refusal import Misfit, Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.nvidia_vgpu import group_key, render_binding
from pumice.wire.objects import Node, Pod, PodSpec

ASKS_REMEMBERED = 100_000
STATEMENTS_REMEMBERED = 10_000


class NvidiaVgpu(Family):
    """HAMi-core and MIG under one configuration. Stateless but for caches; a new configuration makes a new object."""

    name = "nvidia-vgpu"
    lock = names.NODE_LOCK_VGPU
    register = names.NODE_VGPU_REGISTER
    series = Series("volcano_vgpu_device", "pumice_vgpu_device")
    allocation_keys = (
        names.VGPU_NODE, names.VGPU_TIME, names.VGPU_IDS, names.DEVICES_TO_ALLOCATE, names.BIND_PHASE, names.BIND_TIME,
    )  # fmt: skip

    def __init__(
        self, config: DeviceConfig | None = None, settings: Settings | None = None, *, search_steps: int = STEPS
    ) -> None:
        self.config = (config or DeviceConfig()).nvidia
        self.settings = settings or Settings()
        self.arguments = self.settings.of(VgpuArguments)
        own = self.arguments
        self.catalogue = Catalogue(self.config, builtin=own.mig_catalogue, anywhere=own.mig_off_group)
        self._asks: dict[Any, Ask] = {}
        self._statements: dict[Hashable, Statement] = {}
        self._steps = search_steps
        self._choose = chooser(own.mig_policy)
        self.ranking = VgpuRanking(self.catalogue, self._choose, self._remembered)
        self.late_quota = VgpuLateQuota(self.config)
        self.planner = VgpuPlanner(self.name, self.catalogue)

    @property
    def tunables(self) -> Tunables:
        return written.tunables(self.config)

    @property
    def steering(self) -> Mapping[str, tuple[str, ...]]:
        return written.steering()

    def remarks(self, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        return written.remarks(self.config, limits, notes)

    def resources(self) -> frozenset[str]:
        c = self.config
        return frozenset((c.resource_count_name, c.resource_memory_name, c.resource_core_name))

    def parameters(self) -> frozenset[str]:
        name = self.config.resource_memory_percentage_name
        return frozenset((name,) if name else ())

    def ask(self, pod: Pod) -> Ask | Refusal | None:
        containers = containers_of(pod, self.config, partial=self.arguments.partial_requests)
        if isinstance(containers, Refusal):
            return containers
        if not containers:
            return None
        constraints: dict[str, Any] = constraints_of(pod, self.settings.policy)
        want = VgpuAsk(containers, rules=matching_rules(self.arguments.rules, pod.metadata.labels), **constraints)
        return self._remembered(want)

    def _remembered(self, want: VgpuAsk) -> Ask:
        key = want.key()
        known = self._asks.get(key)
        if known is None:
            if len(self._asks) >= ASKS_REMEMBERED:
                self._asks.clear()
            known = self._asks[key] = Ask(self.name, key, want)
        return known

    def resources_only(self, pod: Pod) -> bool:
        return STEERING.isdisjoint(pod.metadata.annotations)

    def inventory(self, node: Node) -> Inventory | None:
        s = self.arguments
        return inventory_of(
            node, self.config, self.catalogue, short_entries=s.short_entries, unadvertised=s.unadvertised_nodes
        )

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Grant | Refusal | None:
        return replay_pod(self.name, pod, node, inventory, self._said, handed)

    def _said(self, spec: PodSpec) -> Statement:
        """After a start tens of thousands of pods are read, most of few kinds."""
        if spec.init_containers:
            return statement(spec, self.config)
        key = tuple([(*c.resources.limits.items(), None, *c.resources.requests.items()) for c in spec.containers])
        known = self._statements.get(key)
        if known is None:
            if len(self._statements) >= STATEMENTS_REMEMBERED:
                self._statements.clear()
            known = self._statements[key] = statement(spec, self.config)
        return known

    def least_memory(self, ask: Ask) -> int:
        want: VgpuAsk = ask.detail
        return sum(each.count * each.memory for each in want.containers if each.percent == UNSET)

    def marks(self, pod: Pod) -> Marks:
        meta = pod.metadata
        return Marks(group_key(meta.namespace, meta.annotations), matching_rules(self.arguments.rules, meta.labels))

    def quick(self, ask: Ask, cards: NodeCards) -> Fit | None:
        """``fit`` without the explanation: most refusals are never read."""
        if not cards.inventory.cards:
            return None
        outcome = fit_node(self.name, ask.detail, cards, self._choose, explain=False, steps=self._steps)
        return outcome if isinstance(outcome, Fit) else None

    def fit(self, ask: Ask, cards: NodeCards) -> Fit | Misfit:
        want: VgpuAsk = ask.detail
        if not cards.inventory.cards:
            return no_devices(cards.node)
        outcome = fit_node(self.name, want, cards, self._choose, steps=self._steps)
        if isinstance(outcome, Fit):
            return outcome
        draft = outcome if isinstance(outcome, Draft) else None
        return explain_node(want, cards, draft, hopeless(want, cards, self._choose, self._steps))

    def quota(self, ask: Ask) -> dict[str, int]:
        return quota_of(ask.detail, self.config)

    def annotations(self, grant: Grant, now_ns: int) -> dict[str, str]:
        return render_binding(grant.node, grant.containers, now_ns)

    def no_devices(self, node: str) -> Misfit:
        return no_devices(node)
