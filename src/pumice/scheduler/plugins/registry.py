"""The explicit list of plugins; ``make`` builds the one that a configuration entry names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pumice.devices.protocol import DeviceSharing
from pumice.scheduler.plugins.binpack import Binpack
from pumice.scheduler.plugins.capability import Capability, ClaimQuotas
from pumice.scheduler.plugins.capacity import Capacity
from pumice.scheduler.plugins.contract import Plugin
from pumice.scheduler.plugins.deviceshare import DeviceShare
from pumice.scheduler.plugins.drf import Drf
from pumice.scheduler.plugins.gang import Gang
from pumice.scheduler.plugins.gang_reservation import GangReservation, limit_of
from pumice.scheduler.plugins.network_topology_aware import NetworkTopologyAware
from pumice.scheduler.plugins.nodegroup import NodeGroup
from pumice.scheduler.plugins.nodeorder import NodeOrderPlugin
from pumice.scheduler.plugins.overcommit import Overcommit
from pumice.scheduler.plugins.predicates import Predicates
from pumice.scheduler.plugins.priority import Priority
from pumice.scheduler.plugins.proportion import Proportion
from pumice.scheduler.plugins.resource_strategy_fit import ResourceStrategyFit
from pumice.scheduler.plugins.resourcequota import ResourceQuotas
from pumice.scheduler.plugins.sharding import OwnNodesFirst, Sharding
from pumice.scheduler.plugins.sla import Sla
from pumice.scheduler.plugins.task_topology import TaskTopology
from pumice.scheduler.plugins.tdm import Tdm
from pumice.scheduler.plugins.unserved import Unserved
from pumice.scheduler.plugins.victims import Cdp, Conformance, Pdb
from pumice.wire.device_config import DeviceConfig
from pumice.wire.scheduler_conf import PluginConf, SchedulerConf

PLUGINS: Mapping[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        Priority, Gang, Conformance, Pdb, Cdp, Drf, Predicates, Proportion, Capacity, NodeOrderPlugin, Binpack, Overcommit,
        DeviceShare, Sla, ResourceQuotas, Tdm, NodeGroup, ResourceStrategyFit, NetworkTopologyAware, TaskTopology,
    )
}  # fmt: skip


def always(conf: SchedulerConf, device_types: Iterable[DeviceSharing], devices: DeviceConfig | None) -> list[Plugin]:
    """Return the rules that hold under every configuration."""
    plugins = frozenset(entry.name for tier in conf.tiers for entry in tier)
    owners = frozenset(device_type.name for device_type in device_types)
    gang = conf.plugin(Gang.name)
    limit = 0.0 if gang is None else limit_of(gang.arguments)
    held = [GangReservation(limit)] if limit > 0 else []
    unserved, capability = Unserved(plugins, owners, devices or DeviceConfig()), Capability(ClaimQuotas.configured(conf))
    return [unserved, capability, Sharding(), OwnNodesFirst(), *held]


def make(entry: PluginConf) -> Plugin | None:
    """The plugin of a configuration entry; None when its name is accepted but it does nothing here."""
    kind = PLUGINS.get(entry.name)
    if kind is None:
        return None
    plugin = kind(entry.arguments)
    plugin.hierarchical = entry.enabled("Hierarchy")
    return plugin

