"""What a person asks for on the command line, in units. Every mistake is one line that says what would be right."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pumice.model.refusal import BadInput
from pumice.model.units import INT32_MAX

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Request:
    """A share of one card. ``memory`` in MiB or, where that is 0, ``percent`` of the card's; ``cores`` 0: no limit.

    ``card`` is NVML's index, a UUID, or ``auto``: the card with the most room.
    """

    memory: int = 0
    percent: int = 0
    cores: int = 0
    card: str = "0"
    priority: int = 1

    @property
    def words(self) -> str:
        memory = f"{self.memory} MiB" if self.memory else f"{self.percent or 100} % of the memory"
        return f"{memory} and {self.cores} % of the cores" if self.cores else memory


def parse_memory(text: str) -> tuple[int, int]:
    """``3000`` (MiB) or ``25%`` as (MiB, percent), one of them 0. Raises BadInput."""
    if match := re.fullmatch(r"([0-9]{1,10})%", text.strip()):
        percent = int(match[1])
        if not 1 <= percent <= 100:
            raise BadInput(f"--memory {text}: a percentage of the card's memory is 1% to 100%")
        return 0, percent
    if re.fullmatch(r"[0-9]{1,10}", text.strip()):
        memory = int(text)
        if not 1 <= memory <= INT32_MAX:
            raise BadInput(f"--memory {text}: a number of MiB from 1 on, such as 3000; without --memory it is all of the card's")
        return memory, 0
    hint = "a number of MiB such as 3000, or a share of the card's such as 25%"
    if match := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt])i?b?", text.strip(), re.IGNORECASE):
        mib = float(match[1]) * {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1048576}[match[2].lower()]
        if 1 <= mib <= INT32_MAX:
            hint = f"it counts MiB, so write --memory {round(mib)}"
    raise BadInput(f"--memory {text}: {hint}")


def parse_cores(text: str) -> int:
    """``50`` or ``50%``: percent of the card's compute. Raises BadInput."""
    match = re.fullmatch(r"([0-9]{1,10})%?", text.strip())
    if match is None or not 0 <= int(match[1]) <= 100:
        raise BadInput(f"--cores {text}: percent of the card's compute from 1 to 100; 0 sets no limit")
    return int(match[1])


def parse_priority(text: str) -> int:
    """0 or 1: nothing else has a meaning on the wire (spec hami-core 2.5). Raises BadInput."""
    if text.strip() not in ("0", "1"):
        raise BadInput(f"--priority {text}: 0 is high, 1 is low (the default)")
    return int(text)


def parse_card(text: str) -> str:
    """An index, a UUID or ``auto``. Raises BadInput."""
    text = text.strip()
    if text.lower() == AUTO:
        return AUTO
    if re.fullmatch(r"[0-9]{1,3}|GPU-[0-9A-Fa-f-]+", text):
        return text
    raise BadInput(f"--gpu {text}: the number of a card such as 0, its UUID (GPU-...), or auto")
