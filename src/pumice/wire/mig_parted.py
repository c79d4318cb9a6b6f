"""How a machine's cards shall be cut, as a file: the format of NVIDIA's mig-parted (spec nvidia-device-plugin 14.3), and
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
from typing import Any

from pumice.model.errors import BadInput
from pumice.wire.nearest import nearest
from pumice.wire.yaml_lines import Lined, Path, load_lined

_KEYS = ("devices", "device-filter", "mig-enabled", "mig-devices", "mig-places")
_PLACE = re.compile(r"(?P<profile>[^@\s]+)@(?P<start>[0-9]{1,2})")
_MOST = 64


@dataclass(frozen=True, slots=True)
class Rule:
    """What cards shall be. ``devices`` None: all; ``filter``: PCI ids (device and vendor), empty: any. ``counts`` by profile, and
    ``places`` as (profile, first memory slice)."""

    devices: tuple[int, ...] | None
    enabled: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    places: tuple[tuple[str, int], ...] = ()
    filter: tuple[int, ...] = ()

    def meets(self, index: int, pci_id: int) -> bool:
        return (self.devices is None or index in self.devices) and (not self.filter or pci_id in self.filter)


def parse_mig_configs(text: str) -> dict[str, tuple[Rule, ...]]:
    """The configurations of a file by name. Raises BadInput with the line."""
    lined = load_lined(text)
    value = lined.value
    if not isinstance(value, dict) or value.get("version") != "v1":
        raise BadInput("line 1: expected a mapping with `version: v1`")
    configs = value.get("mig-configs")
    if not isinstance(configs, dict) or not configs:
        raise BadInput(f"line {lined.line('mig-configs')}: expected configurations by name under mig-configs")
    return {str(name): _rules(rules, lined, ("mig-configs", name)) for name, rules in configs.items()}


def _rules(value: Any, lined: Lined, path: Path) -> tuple[Rule, ...]:
    if not isinstance(value, list) or not value:
        raise BadInput(f"{_at(lined, path)}: expected a list of entries with devices and mig-devices")
    return tuple(_rule(entry, lined, (*path, at)) for at, entry in enumerate(value))


def _rule(value: Any, lined: Lined, path: Path) -> Rule:
    if not isinstance(value, dict):
        raise BadInput(f"{_at(lined, path)}: expected a mapping with {', '.join(_KEYS)}")
    for key in value:
        if key not in _KEYS:
            raise BadInput(f"{_at(lined, (*path, key))}: unknown key{nearest(str(key), _KEYS)}")
    enabled = value.get("mig-enabled")
    if not isinstance(enabled, bool):
        raise BadInput(f"{_at(lined, (*path, 'mig-enabled'))}: expected true or false, not {enabled!r}")
    rule = Rule(
        _devices(value.get("devices"), lined, (*path, "devices")),
        enabled,
        _counts(value.get("mig-devices") or {}, lined, (*path, "mig-devices")),
        _places(value.get("mig-places") or [], lined, (*path, "mig-places")),
        _filter(value.get("device-filter") or [], lined, (*path, "device-filter")),
    )
    if not enabled and (rule.counts or rule.places):
        raise BadInput(f"{_at(lined, path)}: cards out of MIG mode have no slices")
    return rule


def _devices(value: Any, lined: Lined, path: Path) -> tuple[int, ...] | None:
    if value == "all":
        return None
    if not isinstance(value, list) or not all(isinstance(index, int) and 0 <= index < _MOST for index in value):
        raise BadInput(f"{_at(lined, path)}: expected all or a list of card numbers, not {value!r}")
    return tuple(value)


def _counts(value: Any, lined: Lined, path: Path) -> dict[str, int]:
    if not isinstance(value, dict):
        raise BadInput(f"{_at(lined, path)}: expected a number for each profile, as in 1g.5gb: 7")
    for profile, count in value.items():
        if not isinstance(profile, str) or not isinstance(count, int) or not 0 <= count < _MOST:
            raise BadInput(f"{_at(lined, (*path, profile))}: expected a number of slices, not {count!r}")
        _whole(profile, lined, (*path, profile))
    return {profile: count for profile, count in value.items() if count}


def _places(value: Any, lined: Lined, path: Path) -> tuple[tuple[str, int], ...]:
    found = []
    for at, text in enumerate(value if isinstance(value, list) else [value]):
        match = _PLACE.fullmatch(str(text))
        if match is None:
            raise BadInput(f"{_at(lined, (*path, at))}: expected a place such as 2g.10gb@4, not {text!r}")
        _whole(match["profile"], lined, (*path, at))
        found.append((match["profile"], int(match["start"])))
    return tuple(found)


def _whole(profile: str, lined: Lined, path: Path) -> None:
    if "c." in profile:
        raise BadInput(f"{_at(lined, path)}: {profile}: parts of a slice are not made; name the slice itself")


def _filter(value: Any, lined: Lined, path: Path) -> tuple[int, ...]:
    try:
        return tuple(int(str(word), 0) for word in (value if isinstance(value, list) else [value]))
    except ValueError:
        raise BadInput(f"{_at(lined, path)}: expected PCI ids such as 0x20B010DE, not {value!r}") from None


def _at(lined: Lined, path: Path) -> str:
    return f"line {lined.line(*path)}: {'.'.join(map(str, path))}"


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
