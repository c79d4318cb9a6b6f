"""``volcano-scheduler.conf``: which actions run, which plugins in which tiers, with which arguments.

Shape and rules: Volcano pkg/scheduler/util.go. Strictness is upstream's: an unknown action refuses the whole file,
an unknown plugin or argument is one warning that names its line and the nearest right word; ``strict`` turns the
warnings into a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pumice.model.errors import BadInput, nearest
from pumice.wire.document import Document, read_document
from pumice.wire.our_devices import CARDS, OUR_DEVICES
from pumice.wire.without_effect import What, rows

# -- The words of ``volcano-scheduler.conf`` --------------------------------------------------------------------------

# Its keys, actions, switches, plugins and their arguments (Volcano pkg/scheduler/util.go).

TOP: Final = ("actions", "tiers", "configurations", "metrics")
ACTIONS: Final = frozenset(
    {"enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", "gangpreempt", "gangreclaim", "defrag"}
)

SWITCHES: Final = (
    "JobOrder", "Hierarchy", "JobReady", "JobPipelined", "TaskOrder", "Preemptable", "Reclaimable", "Preemptive",
    "QueueOrder", "ClusterOrder", "Predicate", "BestNode", "NodeOrder", "TargetJob", "ReservedNodes", "JobEnqueued",
    "Victim", "JobStarving", "Overused", "Allocatable", "HyperNodeOrder", "SubJobReady", "SubJobPipelined",
    "SubJobOrder", "HyperNodeGradient",
)  # fmt: skip
OFF_BY_DEFAULT: Final = frozenset({"Hierarchy", "ClusterOrder"})

# Argument names per plugin; a trailing * stands for any suffix. Empty: the plugin takes none.
PLUGIN_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "priority": (),
    "gang": ("pumice.gangReservation",),
    "conformance": (),
    "drf": (),
    "predicates": (
        "predicate.NodeAffinityEnable", "predicate.NodePortsEnable", "predicate.TaintTolerationEnable",
        "predicate.PodAffinityEnable", "predicate.NodeVolumeLimitsEnable", "predicate.VolumeZoneEnable",
        "predicate.PodTopologySpreadEnable", "predicate.VolumeBindingEnable",
        "predicate.DynamicResourceAllocationEnable", "predicate.CacheEnable", "predicate.GPUSharingEnable",
        "predicate.GPUNumberEnable", "predicate.VGPUEnable", "volumebinding.bindTimeoutSeconds",
        "volumebinding.weight", "volumebinding.shape", "dynamicresources.filterTimeoutSeconds",
    ),
    "proportion": (),
    "nodeorder": (
        "leastrequested.weight", "mostrequested.weight", "balancedresource.weight", "nodeaffinity.weight",
        "podaffinity.weight", "tainttoleration.weight", "imagelocality.weight", "podtopologyspread.weight",
        "pumice.hardPodAffinityWeight",
    ),
    "binpack": ("binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources", "binpack.resources.*"),
    "overcommit": ("overcommit-factor",),
    "deviceshare": (
        *(switch for one in OUR_DEVICES if one.devices == CARDS for switch in one.switches),
        "deviceshare.NodeLockEnable", "deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight",
        "deviceshare.KnownGeometriesCMName", "deviceshare.KnownGeometriesCMNamespace",
        "deviceshare.KnowGeometriesCMName", "deviceshare.KnowGeometriesCMNamespace", "deviceshare.GPUExclusiveRules",
        *(switch for one in OUR_DEVICES if one.devices != CARDS for switch in one.switches), "pumice.*",
    ),
    "capacity": ("ancestorReclaimLevel", "capacity.DynamicResourceAllocationEnable", "capacity.DRAConsumableCapacityEnable"),
    "sla": ("sla-waiting-time",), "resourcequota": (), "usage": ("*",),
    "tdm": ("tdm.revocable-zone.*", "tdm.evict.period"),
    "task-topology": ("task-topology.weight",), "numaaware": ("*",), "cdp": (), "pdb": (), "rescheduling": ("*",),
    "extender": ("*",), "nodegroup": ("strict", "enablePreferredOrder"),
    "resource-strategy-fit": ("resourceStrategyFitWeight", "resources", "sra", "proportional"),
    "network-topology-aware": (
        "weight", "hypernode.binpack.cpu", "hypernode.binpack.memory", "hypernode.binpack.resources",
        "hypernode.binpack.resources.*", "hypernode.binpack.normal-pod.enable", "hypernode.binpack.normal-pod.fading",
        "hypernode.gradient.evict.max-hypernodes",
    ),
}  # fmt: skip


# -- ``volcano-scheduler.conf`` ---------------------------------------------------------------------------------------


DEFAULT_CONF: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""Upstream's built-in configuration (Volcano pkg/scheduler/util.go)."""

_CURLED: Final = frozenset("“”„‘’«»")
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def switch(text: str) -> bool | None:
    """Return the value of a switch word; None where it is no such word."""
    return True if text in _TRUE else False if text in _FALSE else None


class Arguments(Mapping[str, Any]):
    """A plugin's or an action's arguments with tolerant getters (Volcano pkg/scheduler/framework/arguments.go).

    Numeric strings are numbers, boolean words are booleans; junk keeps the default and leaves a sentence in
    ``complaints``.
    """

    def __init__(self, values: Mapping[str, Any] | None = None, owner: str = "") -> None:
        self._values = dict(values or {})
        self._owner = owner
        self.complaints: list[str] = []

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return id(self)

    def boolean(self, key: str, default: bool) -> bool:
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        found = switch(str(value))
        return bool(self._junk(key, value, "true or false", default)) if found is None else found

    def integer(self, key: str, default: int) -> int:
        number = self._number(key, "a whole number")
        if number is None:
            return default
        if number != int(number):
            return int(self._junk(key, self._values[key], "a whole number", default))
        return int(number)

    def real(self, key: str, default: float) -> float:
        number = self._number(key, "a number")
        return default if number is None else number

    def weights(self, prefix: str) -> dict[str, int]:
        """The weights of resources: 1 each but where a number says otherwise that is not negative."""
        named = (name.strip() for name in self.text(f"{prefix}.resources").split(","))
        keys = {"cpu": f"{prefix}.cpu", "memory": f"{prefix}.memory"}
        keys |= {name: f"{prefix}.resources.{name}" for name in named if name}
        found = {name: self.integer(key, 1) for name, key in keys.items()}
        return {name: weight if weight >= 0 else 1 for name, weight in found.items()}

    def text(self, key: str, default: str = "") -> str:
        value = self._values.get(key)
        return default if value is None else str(value)

    def _number(self, key: str, wanted: str) -> float | None:
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                number = float(value)
            except ValueError:
                number = float("nan")
            if abs(number) < 2**53:
                return number
        self._junk(key, value, wanted, None)
        return None

    def _junk(self, key: str, value: Any, wanted: str, default: Any) -> Any:
        self.complaints.append(f"{self._owner}: {key} is {value!r}, not {wanted}; {default!r} is used")
        return default


@dataclass(frozen=True, slots=True)
class PluginConf:
    """One plugin of one tier. ``off`` holds the switches that are off, without their ``enable`` prefix."""

    name: str
    arguments: Arguments = field(default_factory=Arguments)
    off: frozenset[str] = OFF_BY_DEFAULT

    def enabled(self, switch: str) -> bool:
        return switch not in self.off


@dataclass(frozen=True, slots=True)
class SchedulerConf:
    """A whole configuration file; ``warnings`` are sentences for the log."""

    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginConf, ...], ...]
    configurations: Mapping[str, Arguments] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def plugin(self, name: str) -> PluginConf | None:
        """The first entry of that plugin, wherever it stands."""
        return next((p for tier in self.tiers for p in tier if p.name == name), None)

    def action(self, name: str) -> Arguments:
        return self.configurations.get(name) or Arguments(owner=f"action {name}")


def parse_scheduler_conf(text: str, *, source: str = "volcano-scheduler.conf", strict: bool = False) -> SchedulerConf:
    """Read a configuration. Raises BadInput (one line) when it must be refused as a whole."""
    conf, errors = read_scheduler_conf(text, source=source)
    if errors or (strict and conf.warnings):
        raise BadInput(errors[0] if errors else f"{conf.warnings[0]} (strict)")
    return conf


def read_scheduler_conf(text: str, *, source: str) -> tuple[SchedulerConf, tuple[str, ...]]:
    """Return the readable part and every reason to refuse the whole. Raises BadInput where it is no such file at all."""
    try:
        lined = read_document(text)
    except BadInput as error:
        raise BadInput(f"{source}: not YAML: {error}") from None
    data = lined.value
    if data is None:
        raise BadInput(f"{source}: it is empty; expected the keys actions and tiers")
    if not isinstance(data, dict):
        raise BadInput(f"{source}: expected the keys actions and tiers, found {type(data).__name__}")
    reader = _Reader(source, lined)
    reader.top(data)
    conf = SchedulerConf(
        actions=reader.actions(data),
        tiers=reader.tiers(data),
        configurations=reader.configurations(data),
        metrics=data.get("metrics") or {},
        warnings=tuple(reader.warnings),
    )
    return conf, tuple(reader.errors)


class _Reader:
    def __init__(self, source: str, lined: Document) -> None:
        self._source, self._lined = source, lined
        self.warnings: list[str] = []
        self.errors: list[str] = []

    def top(self, data: Mapping[str, Any]) -> None:
        for key in data:
            if key == "plugins":
                self._warn((key,), "plugins stand in a list of tiers; write tiers:, and below it - plugins:")
            elif key not in TOP:
                self._warn((key,), f"unknown key {key!r} is ignored{nearest(str(key).lower(), TOP)}")
            else:
                self._without_effect(What.KEY, key, (key,), data[key])

    def actions(self, data: Mapping[str, Any]) -> tuple[str, ...]:
        given = data.get("actions")
        words = [word.strip() for word in str(given or "").split(",") if word.strip()]
        if not words or not isinstance(given, str):
            found = "no actions" if not words else "actions: expected one text"
            self._refuse(("actions",), f'{found}; write for example actions: "enqueue, allocate, backfill"')
            return ()
        for word in words:
            if word not in ACTIONS:
                typographic = " (typographic quotation marks belong to the word)" if _CURLED & set(word) else ""
                self._refuse(("actions",), f"unknown action {word!r}{nearest(word, ACTIONS)}{typographic}")
            self._without_effect(What.ACTION, word, ("actions",))
        return tuple(words)

    def tiers(self, data: Mapping[str, Any]) -> tuple[tuple[PluginConf, ...], ...]:
        tiers = []
        for number, tier in enumerate(_items(data.get("tiers"))):
            plugins = []
            for key in tier if isinstance(tier, dict) else ():
                if key != "plugins":
                    meant = "; it belongs to a plugin: indent it as deep as name" if key == "arguments" else ""
                    self._warn(("tiers", number, key), f"unknown key {key!r} of a tier is ignored{meant}")
            for place, entry in enumerate(_items(tier.get("plugins") if isinstance(tier, dict) else None)):
                plugin = self._plugin(entry, ("tiers", number, "plugins", place))
                if plugin is not None:
                    plugins.append(plugin)
            names = {p.name for p in plugins}
            if "proportion" in names and any(p.name == "drf" and p.enabled("Hierarchy") for p in plugins):
                self._refuse(("tiers", number), "drf with enableHierarchy and proportion exclude each other in one tier")
            tiers.append(tuple(plugins))
        return tuple(tiers)

    def configurations(self, data: Mapping[str, Any]) -> dict[str, Arguments]:
        found = {}
        for entry in _items(data.get("configurations")):
            if isinstance(entry, dict) and entry.get("name"):
                arguments = entry.get("arguments")
                name = str(entry["name"])
                found[name] = Arguments(arguments if isinstance(arguments, dict) else {}, f"configuration {name}")
        return found

    def _plugin(self, entry: Any, path: tuple[str | int, ...]) -> PluginConf | None:
        name = str(entry.get("name", "")) if isinstance(entry, dict) else str(entry)
        if name not in PLUGIN_ARGUMENTS:
            self._warn(path, f"unknown plugin {name!r} is skipped{nearest(name, PLUGIN_ARGUMENTS)}")
            return None
        arguments = entry.get("arguments") if isinstance(entry, dict) else None
        if not isinstance(entry, dict):
            self._warn(path, f"upstream refuses a bare word here; write name: {name}")
        if not isinstance(arguments, dict):
            if arguments is not None:
                self._warn((*path, "arguments"), "arguments are ignored: expected key: value below it, without dashes")
            arguments = {}
        self._without_effect(What.PLUGIN, name, path)
        for key, value in arguments.items():
            self._check_argument(name, str(key), (*path, "arguments", key))
            self._without_effect(What.ARGUMENT, str(key), (*path, "arguments", key), value)
        return PluginConf(name, Arguments({str(k): v for k, v in arguments.items()}, f"plugin {name}"),
                          self._switched_off(entry, path))  # fmt: skip

    def _check_argument(self, plugin: str, key: str, path: tuple[str | int, ...]) -> None:
        known = PLUGIN_ARGUMENTS[plugin]
        if key in known or any(k.endswith("*") and key.startswith(k[:-1]) for k in known):
            return
        owner = next((name for name, others in PLUGIN_ARGUMENTS.items() if key in others), "")
        hint = f"; it belongs to plugin {owner}" if owner else nearest(key, (one for one in known if not one.endswith("*")))
        self._warn(path, f"plugin {plugin} has no argument {key!r}{hint}")

    def _switched_off(self, entry: Any, path: tuple[str | int, ...]) -> frozenset[str]:
        off = set(OFF_BY_DEFAULT)
        for key, value in entry.items() if isinstance(entry, dict) else ():
            # Both spellings of every switch are read: upstream mixes enableX and enabledX (Volcano pkg/scheduler/util.go).
            word = str(key)
            switch = word.removeprefix("enabled") if word.startswith("enabled") else word.removeprefix("enable")
            if not word.startswith("enable"):
                if word not in ("name", "arguments"):
                    self._warn((*path, key), f"unknown key {word!r} is ignored")
                continue
            if switch not in SWITCHES:
                self._warn((*path, key), f"unknown switch {word!r}{nearest(switch, SWITCHES)}")
                continue
            if str(value) in _FALSE:
                off.add(switch)
            else:
                off.discard(switch)
        return frozenset(off)

    def _without_effect(self, what: What, name: str, path: tuple[str | int, ...], value: Any = None) -> None:
        row = rows(what).get(name)
        if row is not None and row.asks(value):
            self._warn(path, row.text)

    def _refuse(self, path: tuple[str | int, ...], text: str) -> None:
        self.errors.append(f"{self._source} line {self._lined.line(*path)}: {text}")

    def _warn(self, path: tuple[str | int, ...], text: str) -> None:
        self.warnings.append(f"{self._source} line {self._lined.line(*path)}: {text}")


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
