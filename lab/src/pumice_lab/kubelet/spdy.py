"""SPDY/3.1 as far as forwarding of ports speaks it: streams of bytes over one connection. Pure: bytes in, events and bytes out.

Source: "SPDY Protocol - Draft 3.1" (chromium.org); the dictionary of its headers is section 2.6.10.1. Nobody has a window:
neither end of Kubernetes' counts what it sends.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_WORDS = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length content-location "
    "content-md5 content-range content-type date etag expect expires from host if-match if-modified-since if-none-match "
    "if-range if-unmodified-since last-modified location max-forwards pragma proxy-authenticate proxy-authorization range "
    "referer retry-after server te trailer transfer-encoding upgrade user-agent vary via warning www-authenticate method "
    "get status 200_OK version HTTP/1.1 url public set-cookie keep-alive origin"
)
_REST = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,public"
    "privatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)
_DICTIONARY: Final = b"".join(
    struct.pack(">I", len(word)) + word.replace("_", " ").encode() for word in _WORDS.split()) + _REST.encode()  # fmt: skip
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING = 1, 2, 3, 6
_FIN = 1
LONGEST_FRAME: Final = 1 << 17
LONGEST_HEADERS: Final = 1 << 16


class Malformed(Exception):
    """The input is no SPDY, or longer than anybody needs."""


@dataclass(frozen=True, slots=True)
class Opened:
    stream: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Data:
    """A frame of data. ``last``: the other end writes no more on this stream."""

    stream: int
    data: bytes
    last: bool


@dataclass(frozen=True, slots=True)
class Reset:
    stream: int


@dataclass(frozen=True, slots=True)
class Ping:
    """To be sent back as it is."""

    frame: bytes


Event = Opened | Data | Reset | Ping


class Reader:
    """The frames of one connection."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._headers = zlib.decompressobj(zdict=_DICTIONARY)

    def feed(self, data: bytes) -> Iterator[Event]:
        """Raises Malformed."""
        self._held += data
        while len(self._held) >= 8:
            first, flags, length = self._held[:4], self._held[4], int.from_bytes(self._held[5:8], "big")
            if length > LONGEST_FRAME:
                raise Malformed(f"a frame of {length} bytes")
            if len(self._held) < 8 + length:
                return
            body = bytes(self._held[8 : 8 + length])
            whole = bytes(self._held[: 8 + length])
            del self._held[: 8 + length]
            if not first[0] & 0x80:
                yield Data(int.from_bytes(first, "big"), body, bool(flags & _FIN))
            else:
                yield from self._control(int.from_bytes(first[2:], "big"), flags, body, whole)

    def _control(self, kind: int, flags: int, body: bytes, whole: bytes) -> Iterator[Event]:
        if kind == _PING:
            yield Ping(whole)
        elif kind in (_SYN_STREAM, _RST_STREAM):
            if len(body) < (10 if kind == _SYN_STREAM else 8):
                raise Malformed("a frame that ends early")
            stream = int.from_bytes(body[:4], "big") & 0x7FFFFFFF
            if kind == _RST_STREAM:
                yield Reset(stream)
                return
            yield Opened(stream, self._read_headers(body[10:]))
            if flags & _FIN:
                yield Data(stream, b"", last=True)

    def _read_headers(self, block: bytes) -> Mapping[str, str]:
        try:
            plain = self._headers.decompress(block, LONGEST_HEADERS)
            if self._headers.unconsumed_tail:
                raise Malformed("headers that are longer than any")
            (count,) = struct.unpack_from(">I", plain)
            at, words = 4, list[str]()
            for _ in range(min(count, 100) * 2):
                (length,) = struct.unpack_from(">I", plain, at)
                words.append(plain[at + 4 : at + 4 + length].decode())
                at += 4 + length
        except (zlib.error, struct.error, UnicodeDecodeError) as problem:
            raise Malformed(f"headers that cannot be read: {problem}") from None
        return dict(zip(words[::2], words[1::2], strict=True))


class Writer:
    def __init__(self) -> None:
        self._headers = zlib.compressobj(zdict=_DICTIONARY)

    def reply(self, stream: int) -> bytes:
        """That a stream is taken, without headers."""
        block = self._headers.compress(bytes(4)) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_REPLY, struct.pack(">I", stream) + block)

    def opened(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Return the first frames of the end that asks."""
        words = [word.encode() for pair in headers.items() for word in pair]
        plain = struct.pack(">I", len(headers)) + b"".join(struct.pack(">I", len(word)) + word for word in words)
        block = self._headers.compress(plain) + self._headers.flush(zlib.Z_SYNC_FLUSH)
        return _control(_SYN_STREAM, struct.pack(">IIH", stream, 0, 0) + block)


def data_frame(stream: int, data: bytes, *, last: bool = False) -> bytes:
    return struct.pack(">II", stream, (_FIN if last else 0) << 24 | len(data)) + data


def reset_frame(stream: int) -> bytes:
    return _control(_RST_STREAM, struct.pack(">II", stream, 5))  # 5: CANCEL


def _control(kind: int, body: bytes) -> bytes:
    return struct.pack(">HHI", 0x8003, kind, len(body)) + body
