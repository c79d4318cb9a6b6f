"""``volcano-controller.conf`` of the ConfigMap ``volcano-controller-configmap``: what tells of the network
(docs/reference/topology.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pumice.wire.document import Field, read_document
from pumice.wire.quantity import parse_duration

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
    """The configuration of network discovery. ``profiles`` is None where nothing is read from labels; ``others`` are enabled
    sources that are not served here."""

    profiles: tuple[Profile, ...] | None = None
    others: tuple[str, ...] = ()


def parse_controller_conf(text: str) -> Discovery:
    """Raises BadInput with line and path of what is wrong."""
    document = read_document(text, file=CONFIG_KEY)
    listed = document.root["networkTopologyDiscovery"] if document.root.given and document.root.mapping() else None
    profiles: tuple[Profile, ...] | None = None
    others = []
    for entry in listed.items() if listed is not None and listed.given else ():
        entry.mapping()
        source, enabled = entry["source"], entry["enabled"]
        if source.value not in SOURCES:
            raise source.error(f"{source.value!r} is none of {', '.join(SOURCES)}")
        if not isinstance(entry.value.get("enabled", False), bool):
            raise enabled.error(f"{enabled.value!r} is neither true nor false")
        if entry["interval"].given:
            _duration(entry["interval"])
        if not enabled.value:
            continue
        if source.value != LABEL:
            others.append(source.value)
        elif profiles is not None:
            raise entry.error(f"there is one source {LABEL} at most")
        else:
            types = _or_none(_or_none(entry["config"]).get("networkTopologyTypes"))
            profiles = tuple(_profile(name, found) for name, found in types.items())
    return Discovery(profiles, tuple(others))


def _or_none(field: Field | None) -> dict[str, Field]:
    """Return the fields of a mapping that may be left out, or be empty in any way."""
    return field.mapping() if field is not None and field.value else {}


def _profile(name: str, found: Field) -> Profile:
    """Read a list of labels, or a mapping that says which nodes it is about."""
    if isinstance(found.value, list):
        return Profile(name, _levels(found))
    found.mapping()
    selector = found["nodeSelector"]
    labels = {key: str(value.value) for key, value in _or_none(_or_none(selector).get("matchLabels")).items()}
    if not labels:
        raise found.error("nodeSelector.matchLabels: say by which labels its nodes are known")
    return Profile(name, _levels(found["levels"]), labels)


def _levels(found: Field) -> tuple[Level, ...]:
    levels = tuple(_level(entry) for entry in (found.items() if found.value else ()))
    if len(levels) < 2:
        raise found.error("name a level of the network at least, and below it the label of the nodes themselves")
    if double := next((level.label for level in levels if sum(other.label == level.label for other in levels) > 1), ""):
        raise found.error(f"{double} is named twice")
    return levels[:-1]


def _level(entry: Field) -> Level:
    entry.mapping()
    label = entry["nodeLabel"]
    if not isinstance(label.value, str) or not label.value:
        raise label.error(f"{label.value!r} is no label")
    return Level(label.value, str(entry["tierName"].value or label.value))


def _duration(field: Field) -> None:
    try:
        parse_duration(str(field.value))
    except ValueError as error:
        raise field.error(str(error)) from error
