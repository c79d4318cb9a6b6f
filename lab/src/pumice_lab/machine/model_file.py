"""Reading a machine model from YAML or TOML: a mistake is named with file, line, key and the nearest right word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from pumice.model.hardware import CardPreset, mig_table_for, mig_tables, preset_names
from pumice.model.hardware import preset as card_preset
from pumice_lab.machine.document import Field, nearest, read_document, read_file
from pumice_lab.machine.model import MAX_CARDS, CardModel, FaultModel, MachineModel, from_preset, placed

_ARCHITECTURES = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell")


def load_model(source: Path | str) -> MachineModel:
    """The model in a file (``Path``, or text naming a ``.yaml``, ``.yml`` or ``.toml`` file) or in a text.

    Raises BadInput with file, line, key and the nearest right word, also when the file cannot be read.
    """
    if isinstance(source, str) and ("\n" in source or not re.search(r"\.(ya?ml|toml)$", source)):
        return _machine(read_document(source, "<model>"))
    return _machine(read_file(Path(source)))


_MACHINE_KEYS = (
    "machine", "driver", "cuda", "time", "cards", "faults",
    "slice-us", "kernel-us", "copy-mib-per-s", "queue-depth", "overlap", "root-only", "pids",
)  # fmt: skip


def _machine(document: Field) -> MachineModel:
    keys = document.mapping(_MACHINE_KEYS)
    name = keys["machine"].text() if "machine" in keys else "machine"
    if "cards" not in keys:
        raise document.error("has no cards")
    cards = [card for part in keys["cards"].items() for card in _cards(part)]
    if not 1 <= len(cards) <= MAX_CARDS:
        raise keys["cards"].error(f"a machine has 1 to {MAX_CARDS} cards, not {len(cards)}")
    models = placed(name, [card for card, _ in cards])
    parts = [part for _, part in cards]
    _check_unique(models, parts)
    _check_links(models, parts)
    return MachineModel(
        name=name,
        cards=models,
        faults=tuple(_fault(part) for part in keys["faults"].items()) if "faults" in keys else (),
        **dict(_settings(keys)),  # type: ignore[arg-type]
    )


def _settings(keys: dict[str, Field]) -> Iterator[tuple[str, object]]:
    if part := keys.get("driver"):
        if not re.fullmatch(r"\d+(\.\d+){1,3}", version := str(part.value)):
            raise part.error(f"must be a driver version such as 535.104.05, not {version!r}")
        yield "driver", version
    if part := keys.get("cuda"):
        if (match := re.fullmatch(r"(\d+)\.(\d)", str(part.value))) is None:
            raise part.error(f"must be a CUDA version such as 12.2, not {part.value!r}")
        yield "cuda", int(match[1]) * 1000 + int(match[2]) * 10
    if part := keys.get("time"):
        yield "virtual_time", part.word(("real", "virtual")) == "virtual"
    if part := keys.get("slice-us"):
        yield "slice_us", part.integer(least=1)
    if part := keys.get("kernel-us"):
        yield "kernel_us", part.number()
    if part := keys.get("copy-mib-per-s"):
        yield "copy_mib_per_s", part.integer()
    if part := keys.get("queue-depth"):
        yield "queue_depth", part.integer(least=1, most=2**32 - 1)
    if part := keys.get("overlap"):
        yield "overlap", part.flag()
    if part := keys.get("root-only"):
        yield "require_root", part.flag()
    if part := keys.get("pids"):
        yield "pids", part.word(("all", "own", "none"))


_CARD_KEYS = (
    "preset", "count", "name", "memory", "reserved", "context", "strangers", "sms", "compute", "architecture",
    "uuid", "pci", "numa", "nvlink", "mig",
)  # fmt: skip


def _cards(part: Field) -> list[tuple[CardModel, Field]]:
    """The cards of one entry (``count`` of them), each with the field to blame."""
    if isinstance(part.value, str):
        return [(from_preset(_preset(part)), part)]
    keys = part.mapping(_CARD_KEYS)
    base = from_preset(_preset(keys["preset"])) if "preset" in keys else _explicit(part, keys)
    card = replace(base, **dict(_card_facts(keys)))  # type: ignore[arg-type]
    if mig := keys.get("mig"):
        card = _with_mig(card, mig)
    count = keys["count"].integer(least=1, most=MAX_CARDS) if "count" in keys else 1
    if count > 1 and (own := keys.get("uuid") or keys.get("pci")):
        raise own.error(f"cannot be given for {count} cards at once")
    return [(card, part)] * count


def _card_facts(keys: dict[str, Field]) -> Iterator[tuple[str, object]]:
    if part := keys.get("name"):
        yield "name", part.text()
    for key in ("memory", "reserved", "context", "strangers"):
        if part := keys.get(key):
            yield key, part.mib(least=1 if key == "memory" else 0)
    if part := keys.get("sms"):
        yield "sms", part.integer(least=1, most=1024)
    if part := keys.get("numa"):
        yield "numa", part.integer(least=-1, most=1023)
    if part := keys.get("uuid"):
        if not re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", part.text()):
            raise part.error(f"must look like GPU-8f1de7c0-5e5c-4f0c-9b0e-70756d696365, not {part.value!r}")
        yield "uuid", part.text()
    if part := keys.get("pci"):
        yield "pci", _pci(part)
    if part := keys.get("nvlink"):
        yield "nvlinks", _nvlinks(part)


def _preset(part: Field) -> CardPreset:
    return card_preset(part.word(preset_names()))


def _explicit(part: Field, keys: dict[str, Field]) -> CardModel:
    """A card without a preset: name, memory, sms and compute say what it is."""
    for needed in ("name", "memory", "sms", "compute"):
        if needed not in keys:
            raise part.error(f'needs "preset", or "name", "memory", "sms" and "compute"; "{needed}" is missing')
    compute = keys["compute"]
    if (match := re.fullmatch(r"(\d+)\.(\d)", str(compute.value))) is None:
        raise compute.error(f"must be a compute capability such as 8.0, not {compute.value!r}")
    architecture = keys["architecture"].word(_ARCHITECTURES) if "architecture" in keys else _architecture(int(match[1]))
    table = mig_table_for(keys["name"].text())
    facts = CardPreset(
        key="", name=keys["name"].text(), memory=keys["memory"].mib(least=1), sms=keys["sms"].integer(least=1,
        most=1024), compute=(int(match[1]), int(match[2])), architecture=architecture, pci_id=0x000010DE,
        sm_clock=1410, memory_clock=1215, power=300, mig=table.name if table else "",
    )  # fmt: skip
    return from_preset(facts)


def _architecture(major: int) -> str:
    return {6: "pascal", 7: "volta", 8: "ampere", 9: "hopper"}.get(major, "blackwell" if major > 9 else "pascal")


def _with_mig(card: CardModel, part: Field) -> CardModel:
    """``mig: true`` (mode on), ``mig: false`` (not capable), or a mapping of mode, table and needs-reset."""
    if isinstance(part.value, bool):
        if part.value and not card.mig:
            raise part.error(f"{card.name} has no MIG")
        return replace(card, mig_mode=part.value, mig=card.mig if part.value else "")
    keys = part.mapping(("mode", "table", "needs-reset"))
    if table := keys.get("table"):
        card = replace(card, mig=table.word(mig_tables()))
    if not card.mig:
        raise part.error(f'{card.name} has no MIG; name a table of profiles ("table")')
    if mode := keys.get("mode"):
        card = replace(card, mig_mode=mode.flag())
    if reset := keys.get("needs-reset"):
        card = replace(card, mig_needs_reset=reset.flag())
    return card


def _pci(part: Field) -> str:
    match = re.fullmatch(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.0)?", part.text())
    if match is None:
        raise part.error(f"must be a PCI address such as 0000:07:00.0, not {part.value!r}")
    return f"{int(match[1] or '0', 16):08X}:{match[2].upper()}:{match[3].upper()}.0"


def _nvlinks(part: Field) -> tuple[int, ...]:
    """``nvlink: switch`` (twelve links to a switch), or the card at the end of each link (-1: a switch)."""
    if part.value == "switch":
        return (-1,) * 12
    links = tuple(peer.integer(least=-1, most=MAX_CARDS - 1) for peer in part.items())
    if len(links) > 18:
        raise part.error(f"a card has at most 18 links, not {len(links)}")
    return links


def _fault(part: Field) -> FaultModel:
    keys = part.mapping(("call", "error", "first", "count", "delay-ms", "crash"))
    if "call" not in keys:
        raise part.error('needs "call", the name of a driver or NVML function')
    call = keys["call"].text()
    if not re.fullmatch(r"(cu|nvml)[A-Z]\w{2,58}", call):
        raise keys["call"].error(f"must be a driver or NVML function such as cuMemAlloc_v2, not {call!r}")
    code = 0
    if error := keys.get("error"):
        if isinstance(error.value, int):
            code = error.integer(least=1, most=999)
        elif (known := answer_code(error.text())) is None:
            raise error.error(f"{error.value!r} is not an error of CUDA or NVML{nearest(error.text(), FAULT_ANSWERS)}")
        else:
            code = known
    fault = FaultModel(
        call=call,
        code=code,
        first=keys["first"].integer(least=1) if "first" in keys else 1,
        count=keys["count"].integer() if "count" in keys else 1,
        delay_ns=int(keys["delay-ms"].number() * 1e6) if "delay-ms" in keys else 0,
        crash=keys["crash"].flag() if "crash" in keys else False,
    )
    if not (fault.code or fault.delay_ns or fault.crash):
        raise part.error('does nothing; give it "error", "delay-ms" or "crash"')
    return fault


def _check_unique(cards: tuple[CardModel, ...], parts: list[Field]) -> None:
    """Two cards never share a UUID or a PCI address."""
    for attribute in ("uuid", "pci"):
        seen: dict[str, int] = {}
        for index, (card, part) in enumerate(zip(cards, parts, strict=True)):
            value = getattr(card, attribute)
            if value in seen:
                own = part[attribute] if isinstance(part.value, dict) and attribute in part.value else part
                raise own.error(
                    f"cards {seen[value]} and {index} have one {attribute} ({value}); every card has its own"
                )
            seen[value] = index


def _check_links(cards: tuple[CardModel, ...], parts: list[Field]) -> None:
    """NVLinks join two cards of the machine, and both ends name each other equally often."""
    for index, (card, part) in enumerate(zip(cards, parts, strict=True)):
        for peer, links in Counter(card.nvlinks).items():
            if peer >= len(cards) or peer == index:
                raise part.error(f"nvlink names card {peer}; the other cards are {_others(index, len(cards))}")
            if peer >= 0 and cards[peer].nvlinks.count(index) != links:
                back = cards[peer].nvlinks.count(index)
                raise part.error(f"nvlink has {links} to card {peer}, which has {back} back")


def _others(index: int, count: int) -> str:
    return ", ".join(str(other) for other in range(count) if other != index) or "none"


# -- Names and numbers of the errors that CUDA's driver API and NVML answer with (cuda.h, nvml.h) --------------------

CUDA_ERRORS: Mapping[str, int] = {
    "CUDA_ERROR_INVALID_VALUE": 1,
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_NOT_INITIALIZED": 3,
    "CUDA_ERROR_DEINITIALIZED": 4,
    "CUDA_ERROR_STUB_LIBRARY": 34,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": 46,
    "CUDA_ERROR_NO_DEVICE": 100,
    "CUDA_ERROR_INVALID_DEVICE": 101,
    "CUDA_ERROR_INVALID_IMAGE": 200,
    "CUDA_ERROR_INVALID_CONTEXT": 201,
    "CUDA_ERROR_MAP_FAILED": 205,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_ECC_UNCORRECTABLE": 214,
    "CUDA_ERROR_UNSUPPORTED_LIMIT": 215,
    "CUDA_ERROR_INVALID_PTX": 218,
    "CUDA_ERROR_OPERATING_SYSTEM": 304,
    "CUDA_ERROR_INVALID_HANDLE": 400,
    "CUDA_ERROR_NOT_FOUND": 500,
    "CUDA_ERROR_NOT_READY": 600,
    "CUDA_ERROR_ILLEGAL_ADDRESS": 700,
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": 701,
    "CUDA_ERROR_LAUNCH_TIMEOUT": 702,
    "CUDA_ERROR_CONTEXT_IS_DESTROYED": 709,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
    "CUDA_ERROR_NOT_PERMITTED": 800,
    "CUDA_ERROR_NOT_SUPPORTED": 801,
    "CUDA_ERROR_SYSTEM_NOT_READY": 802,
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": 803,
    "CUDA_ERROR_UNKNOWN": 999,
}
NVML_ERRORS: Mapping[str, int] = {
    "NVML_ERROR_UNINITIALIZED": 1,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_NOT_FOUND": 6,
    "NVML_ERROR_INSUFFICIENT_SIZE": 7,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_TIMEOUT": 10,
    "NVML_ERROR_IRQ_ISSUE": 11,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_RESET_REQUIRED": 16,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_IN_USE": 19,
    "NVML_ERROR_MEMORY": 20,
    "NVML_ERROR_NO_DATA": 21,
    "NVML_ERROR_INSUFFICIENT_RESOURCES": 23,
    "NVML_ERROR_UNKNOWN": 999,
}
FAULT_ANSWERS: Mapping[str, int] = {**CUDA_ERRORS, **NVML_ERRORS}


def answer_code(name: str) -> int | None:
    """The number behind an error's name, or None when there is no such error."""
    return FAULT_ANSWERS.get(name)


def answer_name(call: str, code: int) -> str:
    """The name of ``code`` as an answer of ``call`` (a ``cu…`` or ``nvml…`` function)."""
    table = NVML_ERRORS if call.startswith("nvml") else CUDA_ERRORS
    return next((name for name, number in table.items() if number == code), str(code))
