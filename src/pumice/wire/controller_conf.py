"""``volcano-controller.conf`` of the ConfigMap ``volcano-controller-configmap``: what tells of the network
(docs/reference/topology.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pumice.wire.duration import parse_duration

CONFIG_MAP: Final = "volcano-controller-configmap"
CONFIG_KEY: Final = "volcano-controller.conf"
SOURCE: Final = "volcano.sh/network-topology-source"
"""Label of a HyperNode that was discovered."""
PROFILE: Final = "volcano.sh/network-topology-profile"
LABEL: Final = "label"
SOURCES: Final = ("ufm", "roce", LABEL)


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes with the same value of a label are one domain."""

    label: str
    tier_name: str


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One kind of network: its levels from the highest down, without the nodes themselves."""

    name: str
    levels: tuple[Level, ...]
    selector: Mapping[str, str] | None = None
    """Labels of its nodes; where it has none, those with the lowest level's label are."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """``profiles`` is None where nothing is read from labels; ``others`` are enabled sources that are not served here."""

    profiles: tuple[Profile, ...] | None = None
    others: tuple[str, ...] = ()


def parse_controller_conf(text: str) -> Discovery:
    """Raises ValueError with the path of what is wrong."""
    import yaml

    from pumice.wire.yaml_text import safe_load

    try:
        document = safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error
    listed = _mapping({} if document is None else document, CONFIG_KEY).get("networkTopologyDiscovery")
    profiles: tuple[Profile, ...] | None = None
    others = []
    for number, entry in enumerate(_list([] if listed is None else listed, "networkTopologyDiscovery")):
        path = f"networkTopologyDiscovery[{number}]"
        source = _mapping(entry, path).get("source")
        if source not in SOURCES:
            raise ValueError(f"{path}.source: {source!r} is none of {', '.join(SOURCES)}")
        if not isinstance(entry.get("enabled", False), bool):
            raise ValueError(f"{path}.enabled: {entry['enabled']!r} is neither true nor false")
        if entry.get("interval") is not None:
            _duration(entry["interval"], f"{path}.interval")
        if not entry.get("enabled"):
            continue
        if source != LABEL:
            others.append(source)
        elif profiles is not None:
            raise ValueError(f"{path}: there is one source {LABEL} at most")
        else:
            types = _mapping(entry.get("config") or {}, f"{path}.config").get("networkTopologyTypes") or {}
            where = f"{path}.config.networkTopologyTypes"
            profiles = tuple(_profile(str(name), found, f"{where}.{name}") for name, found in _mapping(types, where).items())
    return Discovery(profiles, tuple(others))


def _profile(name: str, found: Any, path: str) -> Profile:
    """A list of labels, or a mapping that says which nodes it is about."""
    if isinstance(found, list):
        return Profile(name, _levels(found, path))
    said = _mapping(found, path)
    selector = _mapping(said.get("nodeSelector") or {}, f"{path}.nodeSelector").get("matchLabels") or {}
    labels = {str(key): str(value) for key, value in _mapping(selector, f"{path}.nodeSelector.matchLabels").items()}
    if not labels:
        raise ValueError(f"{path}.nodeSelector.matchLabels: say by which labels its nodes are known")
    return Profile(name, _levels(_list(said.get("levels") or [], f"{path}.levels"), f"{path}.levels"), labels)


def _levels(found: list[Any], path: str) -> tuple[Level, ...]:
    levels = tuple(_level(entry, f"{path}[{number}]") for number, entry in enumerate(found))
    if len(levels) < 2:
        raise ValueError(f"{path}: name a level of the network at least, and below it the label of the nodes themselves")
    if double := next((level.label for level in levels if sum(other.label == level.label for other in levels) > 1), ""):
        raise ValueError(f"{path}: {double} is named twice")
    return levels[:-1]


def _level(entry: Any, path: str) -> Level:
    label = _mapping(entry, path).get("nodeLabel")
    if not isinstance(label, str) or not label:
        raise ValueError(f"{path}.nodeLabel: {label!r} is no label")
    return Level(label, str(entry.get("tierName") or label))


def _duration(value: Any, path: str) -> None:
    try:
        parse_duration(str(value))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a mapping, not {value!r}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{path}: expected a list, not {value!r}")
    return value
