"""Cubins and fat binaries as NVIDIA's compilers lay them out, with no code in them: for readers of images."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PTX, CUBIN = 1, 2
LZ4, ZSTD = 0x2000, 0x8000
_PROGBITS, _SYMTAB, _STRTAB, _NOBITS, _NOTES = 1, 2, 3, 8, 0x70000000
_ENTRY, _MANAGED = 0x10, 0x04


@dataclass(frozen=True)
class Kernel:
    name: str
    code: int = 128
    registers: int = 32
    shared: int = 0
    parameters: tuple[int, ...] = ()  # their sizes; each begins at a multiple of its size


@dataclass(frozen=True)
class Variable:
    name: str
    size: int
    initial: bytes = b""
    managed: bool = False


@dataclass
class _Elf:
    sections: list[tuple[str, int, bytes, int]] = field(default_factory=lambda: [("", 0, b"", 0)])

    def add(self, name: str, kind: int, data: bytes, size: int | None = None) -> int:
        self.sections.append((name, kind, data, len(data) if size is None else size))
        return len(self.sections) - 1

    def bytes(self, symbols: int, names: int) -> bytes:
        labels = b"\0".join(name.encode() for name, *_ in self.sections) + b"\0.shstrtab\0"
        self.add(".shstrtab", _STRTAB, labels)
        body, headers, label = bytearray(64), bytearray(), 0
        for index, (name, kind, data, size) in enumerate(self.sections):
            link = names if index == symbols else 0
            headers += struct.pack(
                "<IIQQQQIIQQ", label, kind, 0, 0, len(body), size, link, 0, 1, 24 * (index == symbols)
            )
            label += len(name) + 1
            body += data
        body += bytes(-len(body) % 8)
        start = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
        body[:64] = struct.pack(
            "<16sHHIQQQIHHHHHH",
            start,
            2,
            190,
            1,
            0,
            0,
            len(body),
            0,
            64,
            0,
            0,
            64,
            len(self.sections),
            len(self.sections) - 1,
        )
        return bytes(body + headers)


def _attribute(kind: int, *words: int) -> bytes:
    return struct.pack(f"<BBH{len(words)}I", 4, kind, 4 * len(words), *words)


def cubin(*contents: Kernel | Variable) -> bytes:
    elf, names, symbols, registers = _Elf(), bytearray(b"\0"), bytearray(24), bytearray()
    for thing in contents:
        if isinstance(thing, Kernel):
            section = elf.add(f".text.{thing.name}", _PROGBITS, bytes(thing.code))
            kind, other, size = 2, _ENTRY, thing.code
            registers += _attribute(0x2F, len(symbols) // 24, thing.registers)
            if thing.shared:
                elf.add(f".nv.shared.{thing.name}", _NOBITS, b"", thing.shared)
            notes, end = bytearray(), 0
            for number, bytes_ in enumerate(thing.parameters):
                at = -(-end // bytes_) * bytes_
                notes += _attribute(0x17, 0, number | at << 16, bytes_ << 18 | 0x1F000)
                end = at + bytes_
            elf.add(f".nv.info.{thing.name}", _NOTES, bytes(notes))
        else:
            data = thing.initial.ljust(thing.size, b"\0") if thing.initial else b""
            section = elf.add(
                ".nv.global.init" if data else ".nv.global", _PROGBITS if data else _NOBITS, data, thing.size
            )
            kind, other, size = 1, _MANAGED if thing.managed else 0, thing.size
        symbols += struct.pack("<IBBHQQ", len(names), 0x10 | kind, other, section, 0, size)
        names += thing.name.encode() + b"\0"
    elf.add(".nv.info", _NOTES, bytes(registers))
    table = elf.add(".strtab", _STRTAB, bytes(names))
    return elf.bytes(elf.add(".symtab", _SYMTAB, bytes(symbols)), table)


def fat(*parts: tuple[int, int, bytes] | tuple[int, int, bytes, int]) -> bytes:
    """A fat binary of parts: kind, architecture (80 is sm_80), contents and the mark of a compression."""
    body = b""
    for kind, arch, data, *packed in parts:
        data += bytes(-len(data) % 8)
        flags = packed[0] if packed else 0
        body += struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(data), 0, 0, 0, 0, arch, 0, 0, flags, 0, 0) + data
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
