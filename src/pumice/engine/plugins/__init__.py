"""Plugins of the scheduler, one file each; ``make`` builds the one that a configuration entry names."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.engine.framework import Plugin
from pumice.engine.plugins.binpack import Binpack
from pumice.engine.plugins.conformance import Conformance
from pumice.engine.plugins.deviceshare import DeviceShare
from pumice.engine.plugins.drf import Drf
from pumice.engine.plugins.gang import Gang
from pumice.engine.plugins.nodeorder import NodeOrder
from pumice.engine.plugins.overcommit import Overcommit
from pumice.engine.plugins.predicates import Predicates
from pumice.engine.plugins.priority import Priority
from pumice.engine.plugins.proportion import Proportion
from pumice.engine.plugins.sla import Sla
from pumice.wire.scheduler_conf import PluginConf

PLUGINS: Mapping[str, type[Plugin]] = {
    plugin.name: plugin
    for plugin in (
        Priority, Gang, Conformance, Drf, Predicates, Proportion, NodeOrder, Binpack, Overcommit, DeviceShare, Sla,
    )
}  # fmt: skip


def make(entry: PluginConf) -> Plugin | None:
    """The plugin of a configuration entry; None when its name is accepted but it does nothing here."""
    kind = PLUGINS.get(entry.name)
    return kind(entry.arguments) if kind is not None else None


def without_effect(names: set[str]) -> list[str]:
    """Accepted plugins that have no effect, sorted: said once at start-up (spec volcano-core 11)."""
    return sorted(names - PLUGINS.keys())
