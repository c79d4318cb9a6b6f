"""The explicit list of plugins; ``make`` builds the one that a configuration entry names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pumice.devices.protocol import Family
from pumice.engine.plugins.binpack import Binpack
from pumice.engine.plugins.capability import Capability
from pumice.engine.plugins.capacity import Capacity
from pumice.engine.plugins.cdp import Cdp
from pumice.engine.plugins.conformance import Conformance
from pumice.engine.plugins.contract import Plugin
from pumice.engine.plugins.deviceshare import DeviceShare
from pumice.engine.plugins.drf import Drf
from pumice.engine.plugins.gang import Gang
from pumice.engine.plugins.gang_reservation import GangReservation, limit_of
from pumice.engine.plugins.network_topology_aware import NetworkTopologyAware
from pumice.engine.plugins.nodegroup import NodeGroup
from pumice.engine.plugins.nodeorder import NodeOrder
from pumice.engine.plugins.overcommit import Overcommit
from pumice.engine.plugins.pdb import Pdb
from pumice.engine.plugins.predicates import Predicates
from pumice.engine.plugins.priority import Priority
from pumice.engine.plugins.proportion import Proportion
from pumice.engine.plugins.resource_strategy_fit import ResourceStrategyFit
from pumice.engine.plugins.resourcequota import ResourceQuotas
from pumice.engine.plugins.sla import Sla
from pumice.engine.plugins.task_topology import TaskTopology
from pumice.engine.plugins.tdm import Tdm
from pumice.engine.plugins.unserved import Unserved
from pumice.wire.device_config import DeviceConfig
from pumice.wire.scheduler_conf import PluginConf, SchedulerConf

PLUGINS: Mapping[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        Priority, Gang, Conformance, Pdb, Cdp, Drf, Predicates, Proportion, Capacity, NodeOrder, Binpack, Overcommit, DeviceShare,
        Sla, ResourceQuotas, Tdm, NodeGroup, ResourceStrategyFit, NetworkTopologyAware, TaskTopology,
    )
}  # fmt: skip


def always(conf: SchedulerConf, families: Iterable[Family], devices: DeviceConfig | None) -> list[Plugin]:
    """Return the rules that hold under every configuration."""
    plugins = frozenset(entry.name for tier in conf.tiers for entry in tier)
    owners = frozenset(family.name for family in families)
    gang = conf.plugin(Gang.name)
    limit = 0.0 if gang is None else limit_of(gang.arguments)
    held = [GangReservation(limit)] if limit > 0 else []
    return [Unserved(plugins, owners, devices or DeviceConfig()), Capability(), *held]


def make(entry: PluginConf) -> Plugin | None:
    """The plugin of a configuration entry; None when its name is accepted but it does nothing here."""
    kind = PLUGINS.get(entry.name)
    if kind is None:
        return None
    plugin = kind(entry.arguments)
    plugin.hierarchical = entry.enabled("Hierarchy")
    return plugin

