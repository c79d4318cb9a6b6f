"""The row of a device type, by which every other room finds its faces: a scheduler's, a node's and a command's. They are imported
when they are asked for, so that a row costs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pumice.devices.settings import Argument, Section, Settings
from pumice.wire.device_config import DeviceConfig
from pumice.wire.objects import Node, Pod

if TYPE_CHECKING:
    from pumice.devices.protocol import DeviceSharing


@dataclass(frozen=True, slots=True)
class CardTenant:
    """One pod's part of a card: MiB and percent; ``cores`` None where none are told. ``template``: by what it was cut."""

    pod: str
    memory: int
    cores: int | None = None
    template: str = ""

    def __str__(self) -> str:
        if not self.memory:
            return f"{self.pod} ({self.template or 'whole'})"
        amounts = [self.template, f"{self.memory} MiB", "" if self.cores is None else f"{self.cores} %"]
        return f"{self.pod} ({', '.join(filter(None, amounts))})"


@dataclass(slots=True)
class CardRow:
    """One card. Memory in MiB, cores in percent; ``holders`` are the pods on it."""

    node: str
    index: int
    uuid: str
    type: str
    total: int
    healthy: bool = True
    memory: int = 0
    cores: int = 0
    holders: list[CardTenant] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Switch:
    """One way of sharing these devices, switched on by an argument of plugin ``deviceshare``.

    ``resource``: what node plugins serve for it, as ``pumice doctor`` names it. ``device_types``: the scheduler's face under one
    configuration; one switch may be several, a chip model each. ``arguments``: the other ones that mean something to it, and
    ``complete`` whether those are all. ``excludes``: switches that cannot be true beside it, with the reason.
    """

    key: str
    resource: str
    device_types: Callable[[DeviceConfig | None, Settings], list[DeviceSharing]]
    arguments: tuple[str, ...] = ()
    complete: bool = True
    aliases: tuple[str, ...] = ()
    excludes: Mapping[str, str] = field(default_factory=dict)

    @property
    def argument(self) -> Argument:
        """The switch as an argument."""
        return Argument(self.key, "bool", aliases=self.aliases)


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command of a device type: ``pumice device-plugin <word>`` or ``pumice dra-driver <word>``.

    ``module`` has a function of that name, or ``function``. ``upstream``: flags are taken as upstream's plugin spells them,
    too."""

    word: str
    module: str
    example: str
    upstream: bool = False
    function: str = ""


def _nothing(settings: Settings, config: DeviceConfig | None) -> Iterator[str]:
    yield from ()


def _no_rows(node: Node, pods: Sequence[Pod]) -> Iterable[CardRow]:
    return ()


@dataclass(frozen=True, slots=True)
class DeviceType:
    """One type of devices. ``section``: its arguments. ``card_rows``: a node's cards with the live pods on it, as commands show
    them. ``remarks``: sentences on what is switched on and not configured. ``doctor``: the module with the
    ``CHECKS`` of a node."""

    switches: tuple[Switch, ...]
    section: type[Section] | None = None
    command: PluginCommand | None = None
    claim_command: PluginCommand | None = None
    card_rows: Callable[[Node, Sequence[Pod]], Iterable[CardRow]] = _no_rows
    remarks: Callable[[Settings, DeviceConfig | None], Iterator[str]] = _nothing
    doctor: str = ""
