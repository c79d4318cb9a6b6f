"""The values that describe an emulated machine: its cards, driver, time and faults.

A model is data only. What the machine then allows or refuses is decided by the C libraries that present it; nothing
here emulates a driver.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass, field, replace

from pumice.model.errors import BadInput
from pumice.model.hardware import CardPreset, preset_names, presets_called
from pumice.model.hardware import preset as card_preset
from pumice_lab.machine.document import nearest

MAX_CARDS = 16  # MACHINE_CARDS of state.h; NVML users stop at 16 as well
# What one CUDA context takes of a card, by architecture (seen with drivers 535 to 580).
_CONTEXT_MIB = {"pascal": 150, "volta": 305, "turing": 105, "ampere": 413, "ada": 400, "hopper": 518, "blackwell": 600}
_UUIDS = uuid.UUID("8f1de7c0-5e5c-4f0c-9b0e-70756d696365")


@dataclass(frozen=True, slots=True)
class CardModel:
    """One card. Sizes in MiB. ``mig`` names a table of ``mig.toml`` or is empty; ``mig_mode`` is the mode at the start.

    ``nvlinks`` are the cards at the other end of each link (-1: a switch). ``numa`` is -1 when unknown.
    """

    preset: CardPreset
    name: str
    memory: int
    sms: int
    uuid: str
    pci: str
    numa: int = -1
    nvlinks: tuple[int, ...] = ()
    mig: str = ""
    mig_mode: bool = False
    mig_needs_reset: bool = False
    reserved: int = 0
    context: int = 300
    strangers: int = 0


@dataclass(frozen=True, slots=True)
class FaultModel:
    """Calls number ``first``.. of ``call`` (``count`` of them, 0: for ever) wait ``delay_ns``, then answer ``code``.

    Code 0 only delays; ``crash`` kills the caller instead of answering.
    """

    call: str
    code: int = 0
    first: int = 1
    count: int = 1
    delay_ns: int = 0
    crash: bool = False


@dataclass(frozen=True, slots=True)
class MachineModel:
    """A whole machine. ``cuda`` is 1000 × major + 10 × minor; ``virtual_time`` asks for the machine's own clock."""

    name: str
    cards: tuple[CardModel, ...]
    driver: str = "580.95.05"
    cuda: int = 13000
    virtual_time: bool = False
    slice_us: int = 2000
    kernel_us: float = 5.0
    copy_mib_per_s: int = 0
    queue_depth: int = 1024
    overlap: bool = False
    require_root: bool = False
    pids: str = "all"
    faults: tuple[FaultModel, ...] = field(default=())


def preset(name: str) -> CardModel:
    """One card of the preset ``name``, alone in a machine; raises BadInput naming the nearest preset."""
    return machine_of(name).cards[0]


def machine_of(cards: str | list[str], *, name: str = "machine", virtual_time: bool = False) -> MachineModel:
    """A machine of presets, without a file: ``machine_of("2xA100-SXM4-40GB")`` or a list of such words."""
    models: list[CardModel] = []
    for word in [cards] if isinstance(cards, str) else cards:
        match = re.fullmatch(r"(?:(\d+)x)?(.+)", word.strip())
        assert match is not None
        called = presets_called(match[2])
        if not called:
            raise BadInput(f"cards: {match[2]}: no such card{nearest(match[2], preset_names())}")
        if len(called) > 1:
            raise BadInput(f"cards: {match[2]}: say which: {', '.join(called)}")
        models += [from_preset(card_preset(called[0])) for _ in range(int(match[1] or 1))]
    if not 1 <= len(models) <= MAX_CARDS:
        raise BadInput(f"cards: a machine has 1 to {MAX_CARDS} cards, not {len(models)}")
    return MachineModel(name=name, cards=placed(name, models), virtual_time=virtual_time)


def from_preset(facts: CardPreset) -> CardModel:
    """The card as its preset describes it; UUID and PCI address are given when it is placed in a machine."""
    return CardModel(
        preset=facts,
        name=facts.name,
        memory=facts.memory,
        reserved=facts.reserved,
        context=_CONTEXT_MIB[facts.architecture],
        sms=facts.sms,
        uuid="",
        pci="",
        mig=facts.mig,
    )


def placed(name: str, cards: list[CardModel]) -> tuple[CardModel, ...]:
    """The cards with the UUIDs and PCI addresses that the model left open, made from machine name and index alone."""
    return tuple(
        replace(
            card,
            uuid=card.uuid or f"GPU-{uuid.uuid5(_UUIDS, f'{name}/{index}')}",
            pci=card.pci or f"00000000:{7 + 8 * index:02X}:00.0",
        )
        for index, card in enumerate(cards)
    )
