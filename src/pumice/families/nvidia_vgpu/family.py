"""The vGPU family behind the engine's seam: each method is one step of the protocol, told elsewhere in this folder."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pumice.families.nvidia_vgpu.ask import STEERING, UNSET, VgpuAsk, constraints_of, containers_of
from pumice.families.nvidia_vgpu.draft import Draft
from pumice.families.nvidia_vgpu.fit import fit_node, hopeless
from pumice.families.nvidia_vgpu.inventory import Facts, inventory_of
from pumice.families.nvidia_vgpu.mig import STATES, Catalogue
from pumice.families.nvidia_vgpu.mig_policy import chooser
from pumice.families.nvidia_vgpu.misfit import explain_node, no_devices
from pumice.families.nvidia_vgpu.replay import replay_pod
from pumice.families.nvidia_vgpu.rows import dearest
from pumice.families.protocol import Ask, Columns, Fit, Inventory, Marks, NodeCards, Tunables, WithoutConstraints
from pumice.families.rules import matching_rules
from pumice.families.settings import Settings
from pumice.model.cards import Grant, Mode, Usage
from pumice.model.refusal import Misfit, Refusal
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.nvidia_vgpu import group_key, render_binding
from pumice.wire.objects import Node, Pod

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ASKS_REMEMBERED = 100_000

FORBIDDING = (
    names.USE_GPU_TYPE,
    names.NOUSE_GPU_TYPE,
    names.USE_GPU_UUID,
    names.NOUSE_GPU_UUID,
    names.PODGROUP_POLICY,
)
"""Annotations that only ever keep a pod from cards."""


class NvidiaVgpu:
    """HAMi-core and MIG under one configuration. Stateless but for caches; a new configuration makes a new object."""

    name = "nvidia-vgpu"

    def __init__(self, config: DeviceConfig | None = None, settings: Settings | None = None) -> None:
        self.config = (config or DeviceConfig()).nvidia
        self.settings = settings or Settings(vgpu=True)
        s = self.settings
        self.catalogue = Catalogue(self.config, builtin=s.mig_catalogue, anywhere=s.mig_off_group)
        self._asks: dict[Any, Ask] = {}
        self._choose = chooser(self.settings.mig_policy)

    @property
    def tunables(self) -> Tunables:
        c = self.config
        return Tunables(
            c.resource_count_name, c.resource_memory_name, c.resource_core_name, c.resource_memory_percentage_name,
            names.VGPU_MODE, ("hami-core", "mig"), FORBIDDING,
        )  # fmt: skip

    def resources(self) -> frozenset[str]:
        c = self.config
        return frozenset((c.resource_count_name, c.resource_memory_name, c.resource_core_name))

    def parameters(self) -> frozenset[str]:
        name = self.config.resource_memory_percentage_name
        return frozenset((name,) if name else ())

    def ask(self, pod: Pod) -> Ask | Refusal | None:
        containers = containers_of(pod, self.config, partial=self.settings.partial_requests)
        if isinstance(containers, Refusal):
            return containers
        if not containers:
            return None
        constraints: dict[str, Any] = constraints_of(pod, self.settings.policy)
        want = VgpuAsk(containers, rules=matching_rules(self.settings.rules, pod.metadata.labels), **constraints)
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
        s = self.settings
        return inventory_of(
            node, self.config, self.catalogue, short_entries=s.short_entries, unadvertised=s.unadvertised_nodes
        )

    def replay(self, pod: Pod, node: str, inventory: Inventory, handed: str = "") -> Grant | Refusal | None:
        return replay_pod(self.name, pod, node, inventory, self.config, handed)

    def marks(self, pod: Pod) -> Marks:
        meta = pod.metadata
        return Marks(group_key(meta.namespace, meta.annotations), matching_rules(self.settings.rules, meta.labels))

    def card_state(self, card: int, usage: Usage, inventory: Inventory) -> int:
        facts: Facts = inventory.config
        geometry = facts.geometries[card] if card < len(facts.geometries) else None
        if geometry is None:
            return -1
        state = geometry.number_of(*geometry.held(usage))
        return state if state < 0 else geometry.number * STATES + state

    def quick(self, ask: Ask, cards: NodeCards) -> Fit | None:
        """``fit`` without the explanation: most refusals are never read."""
        if not cards.inventory.cards:
            return None
        outcome = fit_node(self.name, ask.detail, cards, self._choose)
        return outcome if isinstance(outcome, Fit) else None

    def fit(self, ask: Ask, cards: NodeCards) -> Fit | Misfit:
        want: VgpuAsk = ask.detail
        if not cards.inventory.cards:
            return no_devices(cards.node)
        outcome = fit_node(self.name, want, cards, self._choose)
        if isinstance(outcome, Fit):
            return outcome
        draft = outcome if isinstance(outcome, Draft) else None
        return explain_node(want, cards, draft, hopeless(want, cards, self._choose))

    def without_constraints(self, ask: Ask) -> WithoutConstraints | None:
        want: VgpuAsk = ask.detail
        if not (want.group or want.rules or want.use_uuids or want.nouse_uuids):
            return None
        uuids = frozenset(want.use_uuids or want.nouse_uuids)
        plain = replace(want, use_uuids=(), nouse_uuids=(), group="", rules=frozenset())
        return WithoutConstraints(None if want.use_uuids else self._remembered(plain), uuids, want.group, want.rules)

    def vector(self, ask: Ask, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        from pumice.families.nvidia_vgpu.vector import rank_nodes

        want: VgpuAsk = ask.detail
        return rank_nodes(want, columns, self.catalogue, self._choose)

    def annotations(self, grant: Grant, now_ns: int) -> dict[str, str]:
        return render_binding(grant.node, grant.containers, now_ns)

    def quota(self, ask: Ask) -> dict[str, int]:
        """Cards, and memory and cores times cards. What a percentage comes to is known only on a card: see ``quota_of_grant``."""
        want: VgpuAsk = ask.detail
        c = self.config
        memory = sum(x.count * x.memory for x in want.containers if x.percent == UNSET)
        return {
            c.resource_count_name: sum(x.count for x in want.containers),
            c.resource_memory_name: memory,
            c.resource_core_name: sum(x.count * x.cores for x in want.containers),
        }

    def quota_known_late(self, ask: Ask) -> bool:
        """Slots are larger than what was asked for, and the mode may be left to the node."""
        want: VgpuAsk = ask.detail
        return want.mode != Mode.HAMI_CORE or any(container.percent != UNSET for container in want.containers)

    def card_kinds(self, inventory: Inventory) -> frozenset[Hashable]:
        """(memory units, geometry) of its cards."""
        facts: Facts = inventory.config
        return frozenset((card.total, facts.geometries[card.index]) for card in inventory.cards)

    def quota_bound(self, ask: Ask, kinds: Iterable[Any]) -> dict[str, int]:
        """Of a card in MIG mode its largest slot: which groups are in use when the pod's turn comes, nobody knows."""
        want: VgpuAsk = ask.detail
        cards = [(total, geometry) for total, geometry in kinds if geometry is None or want.mode != Mode.HAMI_CORE]
        memory = sum(
            container.count * max((dearest(container, total, geometry) for total, geometry in cards), default=0)
            for container in want.containers
        )
        return {self.config.resource_memory_name: memory}

    def quota_of_grant(self, grant: Grant) -> dict[str, int]:
        """The memory that the cards give: of a slot its size, not what was asked of it (E-30)."""
        return {self.config.resource_memory_name: sum(piece.memory for piece in grant.pieces)}

    def no_devices(self, node: str) -> Misfit:
        return no_devices(node)
