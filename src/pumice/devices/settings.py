"""The arguments of plugin ``deviceshare``. Each is declared once, where it is read: those of one device type in its folder, as a
``Section``; those of all in ``Settings``. The reader follows the declarations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from pumice.devices.card_policies import POLICIES
from pumice.model.errors import nearest
from pumice.wire import names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Score = TypeVar("Score", float, "NDArray[np.float64]")
Rule = tuple[tuple[str, str], ...]
"""Label pairs that a pod must all carry to match."""

LEXICOGRAPHIC_WEIGHT = 1e9
"""Weight of the device score when no weight is set: a policy decides first, other plugins only among nodes that are equal to it.
Their scores are below 1e5, ours differ by at least 1e-6."""
LAST_RESORT = 1000.0
"""Taken from the score of a node that would give a MIG slot to a pod that names no mode: such a score is below 0 (ADR 32)."""
_BEHIND_ALL = 1e12
"""More than all plugins together can give: a last resort comes after every other node, whatever its weight."""

NONE, KEPT, FULLEST = PLANNING = ("none", "kept", "fullest")
"""Ways in which pods that wait together are laid out: each by itself; so that nobody loses the place that it would have alone;
or, of pods that stand equal, so that as much memory as can be is used."""
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. ``kind``: how its value is read (bool, flag, int, str, rules); ``one_of``: the words that it may be, where
    not any; ``aliases``: other spellings, which count where the canonical one is not there."""

    key: str
    kind: str
    one_of: Collection[str] = ()
    aliases: tuple[str, ...] = ()


def argument(key: str, default: Any, *, one_of: Collection[str] = (), aliases: tuple[str, ...] = (), kind: str = "") -> Any:
    """A field of ``Settings`` or of a section that is read from this argument."""
    kind = kind or ("int" if default is None else "rules" if isinstance(default, tuple) else type(default).__name__)
    return field(default=default, metadata={"argument": Argument(key, kind, one_of, aliases)})


@dataclass(frozen=True, slots=True)
class Section:
    """The arguments that one device type alone reads: a subclass declares them, each with a default."""


S = TypeVar("S", bound=Section)


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of plugin ``deviceshare``. ``on``: the switches that are true. ``weight`` None: not given. ``warnings`` are
    sentences for the log and for lint."""

    node_lock: bool = argument("deviceshare.NodeLockEnable", False)
    policy: str = argument("deviceshare.SchedulePolicy", "", one_of=POLICIES)
    weight: int | None = argument("deviceshare.ScheduleWeight", None)
    configmap: str = argument(
        "deviceshare.KnownGeometriesCMName", names.DEVICE_CONFIGMAP, aliases=("deviceshare.KnowGeometriesCMName",)
    )
    configmap_namespace: str = argument(
        "deviceshare.KnownGeometriesCMNamespace", names.DEVICE_CONFIG_NAMESPACE,
        aliases=("deviceshare.KnowGeometriesCMNamespace",),
    )  # fmt: skip
    plan_pending: str = argument("pumice.PlanPendingSet", KEPT, one_of=PLANNING)
    delete_refused: bool = argument("pumice.DeleteRefusedPods", False)
    on: frozenset[str] = frozenset()
    sections: tuple[Section, ...] = ()
    """Those in which anything was said, in the order of the registry."""
    warnings: tuple[str, ...] = ()

    def of(self, section: type[S]) -> S:
        """The arguments of one device type."""
        return next((found for found in self.sections if isinstance(found, section)), None) or section()

    @property
    def node_weight(self) -> float:
        """The factor of a node's score; 0 means that devices have no say in the choice of node."""
        return LEXICOGRAPHIC_WEIGHT if self.weight is None else float(max(0, self.weight))

    @property
    def policy_first(self) -> bool:
        """Return whether a policy decides between nodes before every other plugin."""
        return bool(self.policy) and self.weight is None

    def contribution(self, score: Score) -> Score:
        """Return what a device type's node score (a number or an array) adds to the node's total: upstream's rounding with
        a given weight; unrounded without one, so that ties between nodes of equal card scores are broken too (fit.TIE)."""
        behind = (score < 0) * 1.0
        own = score + behind * LAST_RESORT
        if self.weight is not None:
            own = (own + 0.5) // 1
        return own * self.node_weight - behind * _BEHIND_ALL


def declared(part: type[Settings | Section]) -> dict[str, Argument]:
    """The arguments of a part by the fields that they fill."""
    return {found.name: found.metadata["argument"] for found in fields(part) if "argument" in found.metadata}


def read_settings(arguments: Mapping[str, object], switches: Iterable[Argument], sections: Iterable[type[Section]]) -> Settings:
    """Return what the arguments come to. Unknown or unreadable ones are warnings. ``switches`` and ``sections`` of the device
    types."""
    parts: tuple[type[Settings | Section], ...] = (Settings, *sections)
    switches = tuple(switches)
    known = {found.key: found for found in (*switches, *(a for part in parts for a in declared(part).values()))}
    aliases = {alias: found.key for found in known.values() for alias in found.aliases}
    warnings: list[str] = []
    values: dict[str, Any] = {}
    for key, value in arguments.items():
        canonical = aliases.get(key, key)
        if canonical is not key:
            if canonical in arguments:
                if arguments[canonical] != value:
                    warnings.append(f"{key} is ignored because {canonical} is given too")
                continue
            warnings.append(f"{key} is an old spelling; write {canonical}")
        if canonical not in known:
            words = [word for word in known if not word.startswith(names.INIT_PARAMS)]
            warnings.append(f"unknown argument {key}{nearest(key, (*words, *aliases))}")
            continue
        parsed = _value(known[canonical].kind, key, value, warnings)
        if parsed is not None:
            values[canonical] = parsed
    for key, found in known.items():
        if found.one_of and values.get(key) and values[key] not in found.one_of:
            hint = f"{nearest(values[key], found.one_of)} (one of {', '.join(found.one_of)})"
            warnings.append(f"{key}: {values[key]!r} behaves as unset{hint}")
            del values[key]
    said = [part(**{name: values[a.key] for name, a in declared(part).items() if a.key in values}) for part in parts]
    general, own = said[0], tuple(_spoken(said[1:]))
    assert isinstance(general, Settings)
    on = frozenset(switch.key for switch in switches if values.get(switch.key))
    return replace(general, on=on, sections=own, warnings=tuple(warnings))


def _spoken(sections: Iterable[Settings | Section]) -> Iterator[Section]:
    """Sections in which something differs from what holds without them."""
    return (found for found in sections if isinstance(found, Section) and found != type(found)())


def _value(kind: str, key: str, value: object, warnings: list[str]) -> Any:
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _TRUE | _FALSE:
            return value in _TRUE
        warnings.append(f"{key}: {value!r} is neither true nor false; ignored")
        return None
    if kind == "flag":  # nothing but this word is true
        if value not in (True, False, "true", "false"):
            warnings.append(f"{key}: {value!r} is neither \"true\" nor \"false\"; it counts as false")
        return value in (True, "true")
    if kind == "int":
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and value.strip().lstrip("-").isdigit() and value.isascii() and len(value) < 12:
            return int(value)  # quoted, as many write it
        warnings.append(f"{key}: {value!r} is no whole number; ignored")
        return None
    if kind == "rules":
        return _rules(key, value, warnings)
    if isinstance(value, str):
        return value
    warnings.append(f"{key}: {value!r} is no text; ignored")
    return None


def _rules(key: str, value: object, warnings: list[str]) -> tuple[Rule, ...]:
    """Rules from a list of label maps. Values that are no strings are compared as YAML wrote them: dropping them would widen the
    rule."""
    rules = []
    for number, item in enumerate(value if isinstance(value, list) else [value]):
        pairs = item.items() if isinstance(item, dict) else ()
        rule = tuple(sorted((str(label), _label(text)) for label, text in pairs if isinstance(text, str | int | float)))
        if not rule or len(rule) != len(pairs):
            warnings.append(f"{key}[{number}]: {item!r} is no map of pod labels to values; ignored")
            continue
        rules.append(rule)
    return tuple(rules)


def _label(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
