"""``pumice mig``: cut this machine's cards as a file says; mig-parted's files are read as they are."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pumice.adapters.journal import FileJournal
from pumice.cli import flags
from pumice.cli.laboratory import driver
from pumice.cli.streams import read
from pumice.devices.nvidia_vgpu.node.mig_layout import Layout, arrange
from pumice.devices.nvidia_vgpu.node.mig_slices import act, ours
from pumice.model.errors import BadInput
from pumice.node.slices import known
from pumice.ports.cards import CardFacts
from pumice.ports.slices import CutRefused, Slice
from pumice.wire import variables
from pumice.wire.mig_parted import Rule, parse_mig_configs, render_mig_configs

if TYPE_CHECKING:
    from pumice.adapters.nvml.slices import NvmlSlices

app = flags.App(group=True, help="Cut this machine's cards into MIG slices as a file says.",
                  epilog="Example: pumice mig apply -f mig-parted.yaml -c all-balanced")  # fmt: skip

File = Annotated[Path, flags.Option("-f", "--config-file", help="The file; - for standard input.")]
Name = Annotated[str, flags.Option("-c", "--selected-config", help="Which of its configurations; not needed for the only one.")]
Nvml = Annotated[str, flags.Option(envvar=variables.NVML, help="NVML library or its folder; empty: the system's.")]
Hook = Annotated[Path, flags.Option(envvar="HOOK_PATH", help="Host folder of the device plugin, which has its journal.")]
Plugin = Annotated[bool, flags.Option("--slices-of-the-plugin", help="Also remove what the device plugin has cut for pods.")]
HOOK = Path("/usr/local/vgpu")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One card, what it shall be, and how it gets there or why it cannot."""

    card: CardFacts
    rule: Rule
    layout: Layout | str

    @property
    def done(self) -> bool:
        return isinstance(self.layout, Layout) and not self.layout.steps

    def __str__(self) -> str:
        return f"card {self.card.index} ({self.card.name}): {self.layout if isinstance(self.layout, str) else _said(self.layout)}"


@app.command(epilog="Example: pumice mig export > mig.yaml")
def export(
    nvml: Nvml = "",
    name: Annotated[str, flags.Option(help="What to call the configuration.")] = "current",
    places: Annotated[bool, flags.Option("--places", help="Also where each slice lies, which mig-parted does not read.")] = False,
) -> None:
    """Write how the cards are cut now."""
    with _machine(nvml) as (cards, driver):
        rules = [_rule(card, driver.slices(card.uuid) if card.mig else (), places) for card in cards]
    print(render_mig_configs(name, rules), end="")


@app.command(epilog="Example: pumice mig plan -f mig.yaml -c balanced")
def plan(file: File, name: Name = "", nvml: Nvml = "", hook_path: Hook = HOOK, of_plugin: Plugin = False) -> None:
    """Say what `apply` would do. Exit code 1 when something of it cannot be done."""
    with _machine(nvml) as (cards, driver):
        wanted = _wanted(cards, driver, _rules(file, name), FileJournal(_journal(hook_path)), of_plugin)
    _print(wanted)
    if any(isinstance(one.layout, str) for one in wanted):
        raise SystemExit(1)


@app.command(epilog="Example: pumice mig apply -f mig.yaml -c balanced")
def apply(file: File, name: Name = "", nvml: Nvml = "", hook_path: Hook = HOOK, of_plugin: Plugin = False) -> None:
    """Cut the cards as the file says: what can stay stays, and nothing is touched unless all of it can be done.

    Slices on which a process is are never removed. Exit code 1 when it cannot be done.
    """
    journal = FileJournal(_journal(hook_path))
    with _machine(nvml) as (cards, driver), journal.alone():
        wanted = _wanted(cards, driver, _rules(file, name), journal, of_plugin)
        _print(wanted)
        if any(isinstance(one.layout, str) for one in wanted):
            raise SystemExit(1)
        for one in wanted:
            assert isinstance(one.layout, Layout)
            for step in one.layout.steps:
                act(driver, step)


@app.command("assert", epilog="Example: pumice mig assert -f mig.yaml -c balanced && echo as it should be")
def assert_(file: File, name: Name = "", nvml: Nvml = "", hook_path: Hook = HOOK) -> None:
    """Exit code 0 when the cards are cut as the file says, else 1 with what differs."""
    with _machine(nvml) as (cards, driver):
        wanted = _wanted(cards, driver, _rules(file, name), FileJournal(_journal(hook_path)), of_plugin=True)
    different = [one for one in wanted if not one.done]
    _print(different)
    if different:
        raise SystemExit(1)


@contextmanager
def _machine(nvml: str) -> Iterator[tuple[tuple[CardFacts, ...], NvmlSlices]]:
    from pumice.adapters.nvml import NvmlCards
    from pumice.adapters.nvml.slices import NvmlSlices

    cards = NvmlCards(nvml or driver("libnvidia-ml.so.1", os.environ))
    try:
        yield cards.facts(), NvmlSlices()
    finally:
        cards.close()


def _journal(hook: Path) -> Path:
    return hook / "vgpu" / "mig.json"


def _rules(file: Path, name: str) -> tuple[Rule, ...]:
    try:
        configs = parse_mig_configs(read(file))
    except BadInput as error:
        raise BadInput(str(error) if str(error).startswith(str(file)) else f"{file}: {error}") from None
    if not name and len(configs) == 1:
        return next(iter(configs.values()))
    if name not in configs:
        requested = f"no configuration {name!r}" if name else "several configurations; choose one with -c"
        raise BadInput(f"{file}: {requested}: {', '.join(configs)}")
    return configs[name]


def _wanted(
    cards: tuple[CardFacts, ...], driver: NvmlSlices, rules: tuple[Rule, ...], journal: FileJournal, of_plugin: bool
) -> list[Wanted]:
    """Each card that a rule is about; the last rule counts, as mig-parted applies them one after the other."""
    books = known(journal.read())

    def fixed(slice_: Slice) -> str:
        if slice_.busy:
            return f"a process runs on slice {slice_.place}"
        if not of_plugin and slice_.place in books and ours(slice_, books):
            return f"the device plugin cut slice {slice_.place} for a pod; end that pod, then --slices-of-the-plugin"
        return ""

    found = []
    for card in cards:
        rule = next((rule for rule in reversed(rules) if rule.meets(card.index, card.pci_id)), None)
        if rule is None:
            continue
        layout: Layout | str
        if rule.enabled != card.mig:
            layout = f"its MIG mode is {'on' if card.mig else 'off'}; nvidia-smi -i {card.index} -mig {int(rule.enabled)}"
        elif not card.mig:
            layout = Layout((), (), ())
        else:
            seen, offered = driver.slices(card.uuid), driver.profiles(card.uuid)
            layout = arrange(card.uuid, offered, seen, rule.counts, rule.places, fixed=fixed)
            if layout and not isinstance(layout, str) and layout.steps and (denied := driver.allowed(card.uuid)):
                layout = denied
        found.append(Wanted(card, rule, layout))
    return found


def _rule(card: CardFacts, slices: tuple[Slice, ...], places: bool) -> Rule:
    if any(slice_.parts != 1 for slice_ in slices):
        raise CutRefused(f"card {card.index}: a slice of it is divided further or half made, which such a file cannot say")
    counts = Counter(slice_.place.profile for slice_ in sorted(slices, key=lambda slice_: -slice_.size))
    where = tuple((slice_.place.profile, slice_.place.start) for slice_ in slices) if places else ()
    return Rule((card.index,), card.mig, dict(counts), where)


def _print(wanted: list[Wanted]) -> None:
    for one in wanted:
        print(one)


def _said(layout: Layout) -> str:
    parts = [
        ("keep", [slice_.place for slice_ in layout.stays]),
        ("remove", [slice_.place for slice_ in layout.goes]),
        ("make", layout.comes),
        ("fill", layout.refill),
    ]
    return "; ".join(f"{word} {', '.join(map(str, places))}" for word, places in parts if places) or "nothing to do"
