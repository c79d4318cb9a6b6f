"""The wanted partitions of a machine's cards, as a file: the format of NVIDIA's mig-parted (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu), and
``mig-places`` of ours beside its ``mig-devices`` where the places matter, too.

    version: v1
    mig-configs:
      balanced:
      - devices: [0]            # or all
        device-filter: [0x20B010DE]
        mig-enabled: true
        mig-devices: {2g.10gb: 3, 1g.5gb: 1}
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pumice.model.errors import BadInput
from pumice.wire.document import Field, read_document

_KEYS = ("devices", "device-filter", "mig-enabled", "mig-devices", "mig-places")
_PLACE = re.compile(r"(?P<profile>[^@\s]+)@(?P<start>[0-9]{1,2})")
_MOST = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """The wanted partition of cards. ``devices`` None: all; ``filter``: PCI ids (device and vendor), empty: any. ``counts`` by
    profile, and ``places`` as (profile, first memory slice)."""

    devices: tuple[int, ...] | None
    enabled: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    places: tuple[tuple[str, int], ...] = ()
    filter: tuple[int, ...] = ()

    def meets(self, index: int, pci_id: int) -> bool:
        return (self.devices is None or index in self.devices) and (not self.filter or pci_id in self.filter)


def parse_mig_configs(text: str) -> dict[str, tuple[Rule, ...]]:
    """The configurations of a file by name. Raises BadInput with the line."""
    root = read_document(text).root
    if not isinstance(root.value, dict) or root.value.get("version") != "v1":
        raise BadInput("line 1: expected a mapping with `version: v1`")
    configs = root["mig-configs"]
    if not isinstance(configs.value, dict) or not configs.value:
        raise BadInput(f"line {configs.document.line(*configs.path)}: expected configurations by name under mig-configs")
    return {name: _rules(rules) for name, rules in configs.mapping().items()}


def _rules(listed: Field) -> tuple[Rule, ...]:
    if not isinstance(listed.value, list) or not listed.value:
        raise listed.error("expected a list of entries with devices and mig-devices")
    return tuple(_rule(entry) for entry in listed.items())


def _rule(entry: Field) -> Rule:
    if not isinstance(entry.value, dict):
        raise entry.error(f"expected a mapping with {', '.join(_KEYS)}")
    entry.mapping(_KEYS)
    enabled = entry["mig-enabled"].flag()
    rule = Rule(_devices(entry["devices"]), enabled, _counts(entry["mig-devices"]), _places(entry["mig-places"]),
                _filter(entry["device-filter"]))  # fmt: skip
    if not enabled and (rule.counts or rule.places):
        raise entry.error("cards out of MIG mode have no slices")
    return rule


def _devices(field: Field) -> tuple[int, ...] | None:
    value = field.value
    if value == "all":
        return None
    if not isinstance(value, list) or not all(isinstance(index, int) and 0 <= index < _MOST for index in value):
        raise field.error(f"expected all or a list of card numbers, not {value!r}")
    return tuple(value)


def _counts(field: Field) -> dict[str, int]:
    if not field.value:
        return {}
    if not isinstance(field.value, dict):
        raise field.error("expected a number for each profile, as in 1g.5gb: 7")
    for profile, count in field.mapping().items():
        if not isinstance(count.value, int) or not 0 <= count.value < _MOST:
            raise count.error(f"expected a number of slices, not {count.value!r}")
        _whole(profile, count)
    return {profile: count for profile, count in field.value.items() if count}


def _places(field: Field) -> tuple[tuple[str, int], ...]:
    found = []
    for place in _one_or_many(field):
        match = _PLACE.fullmatch(str(place.value))
        if match is None:
            raise place.error(f"expected a place such as 2g.10gb@4, not {place.value!r}")
        _whole(match["profile"], place)
        found.append((match["profile"], int(match["start"])))
    return tuple(found)


def _whole(profile: str, field: Field) -> None:
    if "c." in profile:
        raise field.error(f"{profile}: parts of a slice are not made; name the slice itself")


def _filter(field: Field) -> tuple[int, ...]:
    try:
        return tuple(int(str(word.value), 0) for word in _one_or_many(field))
    except ValueError:
        raise field.error(f"expected PCI ids such as 0x20B010DE, not {field.value!r}") from None


def _one_or_many(field: Field) -> list[Field]:
    return field.items() if isinstance(field.value, list) else [field] if field.value else []


def render_mig_configs(name: str, rules: Sequence[Rule]) -> str:
    """One configuration as a file; lists on one line, as people write them."""
    lines = ["version: v1", "mig-configs:", f"  {name}:"]
    for rule in rules:
        devices = "all" if rule.devices is None else f"[{', '.join(map(str, rule.devices))}]"
        lines += [f"  - devices: {devices}", f"    mig-enabled: {'true' if rule.enabled else 'false'}"]
        counts = ", ".join(f"{profile}: {count}" for profile, count in rule.counts.items())
        lines.append(f"    mig-devices: {{{counts}}}")
        if rule.places:
            places = ", ".join(f"{profile}@{start}" for profile, start in rule.places)
            lines.append(f"    mig-places: [{places}]")
    return "\n".join(lines) + "\n"
