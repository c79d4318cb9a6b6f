"""Ascend chips and the templates by which they are cut (``npu.toml``; Volcano pkg/scheduler/api/devices/config/vnpu.go)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from pumice.model.hardware import shipped


@dataclass(frozen=True, slots=True)
class Template:
    """One size of slice: memory in MB, AI cores, AI CPUs (0: not stated)."""

    name: str
    memory: int
    cores: int = 0
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class NpuChip:
    """One type of card under one configuration.

    ``word`` is part of every annotation key; ``memory`` (MB) is what a whole card is given, ``capacity`` the largest request that
    still means a whole card; ``templates`` stand in ascending order of memory. ``factor`` multiplies what pods ask for.
    ``pairs``: the dies come two by two (910C as a super pod).
    """

    name: str
    word: str
    memory: int
    capacity: int
    cores: int = 0
    cpus: int = 0
    templates: tuple[Template, ...] = ()
    resource: str = ""
    memory_resource: str = ""
    core_resource: str = ""
    factor: int = 1
    pairs: bool = False
    runtime_class: str = ""
    overwrite_env: bool = False

    @property
    def shares(self) -> int:
        """How many pods a card takes: as many as it has smallest slices."""
        return self.memory // self.templates[0].memory if self.templates else 1

    def cut(self, memory: int) -> Template | None:
        """Return the template for a request of so many MB: the smallest template that holds it; the whole card (no name) above
        all of them; None beyond the capacity."""
        for template in self.templates:
            if memory <= template.memory:
                return template
        return self.whole if memory <= self.capacity else None

    def slice_of(self, memory: int) -> str:
        """The template of which a slice has exactly so many MB; empty where there is none."""
        return next((template.name for template in self.templates if template.memory == memory), "")

    @property
    def whole(self) -> Template:
        return Template("", self.memory, self.cores, self.cpus)


@cache
def shipped_chips(prefix: str) -> tuple[NpuChip, ...]:
    """The chips that are known without a configuration, in the file's order; ``prefix`` of the resources by which they are asked
    for."""
    rows = shipped.table("npu")
    return tuple(
        NpuChip(
            name, row["word"], row["memory"], row["capacity"], row["cores"], row["cpus"],
            tuple(Template(*template) for template in row["templates"]),
            f"{prefix}{row['word']}", f"{prefix}{row['word']}-memory", f"{prefix}{row['word']}-core",
        )
        for name, row in rows.items()
    )  # fmt: skip
