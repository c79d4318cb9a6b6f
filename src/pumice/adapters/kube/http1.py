"""An answer of HTTP/1.1, read from the bytes as they come (RFC 9112, the part that servers of the Kubernetes API use).

Pure: bytes in, an answer out. A general client spends most of its time per request on what a Binding has no use for
(cookies, redirects, tracing, multi-dicts of headers); these are the few lines that are needed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

LONGEST_HEAD = 64 * 1024
LONGEST_CHUNK_LINE = 1024
UNTIL_CLOSE = -1
_IN_CHUNKS = -2


class BadAnswer(Exception):
    """What the server sent is no HTTP/1.1 answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``head`` is the status line and the fields as sent. ``last``: the connection cannot be used again."""

    status: int
    head: bytes
    body: bytes
    last: bool

    def field(self, name: str) -> str:
        """The first field of that name; empty when there is none."""
        return _field(self.head, self.head.lower(), b"\r\n%s:" % name.lower().encode()).decode("latin-1")

    def content(self) -> bytes:
        """The body without its transport's compression. Raises BadAnswer."""
        coding = self.field("Content-Encoding").lower()
        if coding in ("", "identity"):
            return self.body
        if coding != "gzip":
            raise BadAnswer(f"the answer is encoded as {coding!r}, which nobody asked for")
        try:
            return zlib.decompress(self.body, zlib.MAX_WBITS | 16)
        except zlib.error as error:
            raise BadAnswer(f"the answer is no gzip: {error}") from error


class AnswerReader:
    """Reads one answer. Feed it what arrives until it gives the answer; ``eof`` when the server has closed."""

    __slots__ = ("_body", "_buffer", "_head", "_last", "_left", "_status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head = b""
        self._body = bytearray()
        self._left = 0
        self._status = 0
        self._last = False

    @property
    def begun(self) -> bool:
        """Whether anything has arrived."""
        return bool(self._buffer or self._head)

    def feed(self, data: bytes) -> Answer | None:
        """Raises BadAnswer."""
        self._buffer += data
        while not self._head:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > LONGEST_HEAD or not b"HTTP/1.".startswith(bytes(self._buffer[:7])):
                    raise BadAnswer(f"no answer of HTTP/1.1: {bytes(self._buffer[:40])!r}")
                return None
            head = bytes(self._buffer[: end + 2])
            del self._buffer[: end + 4]
            self._read_head(head)
        if self._left == _IN_CHUNKS:
            return self._chunks()
        if self._left == UNTIL_CLOSE or len(self._buffer) < self._left:
            return None
        extra = len(self._buffer) > self._left  # nobody asked for what follows: whose answer it is cannot be known
        return Answer(self._status, self._head, bytes(self._buffer[: self._left]), self._last or extra)

    def eof(self) -> Answer:
        """The server has closed. Raises BadAnswer when the answer is not whole."""
        if self._head and self._left == UNTIL_CLOSE:
            return Answer(self._status, self._head, bytes(self._buffer), True)
        raise BadAnswer("the connection ended in the middle of an answer" if self.begun else "the connection ended")

    def _read_head(self, head: bytes) -> None:
        """Keep the head of the final answer; those in between (100 to 199) are passed over."""
        if not (head.startswith(b"HTTP/1.") and head[8:9] == b" " and head[9:12].isdigit()):
            raise BadAnswer(f"no answer of HTTP/1.1: {head[:40]!r}")
        status = int(head[9:12])
        if 100 <= status < 200:
            return
        lower = head.lower()
        self._head, self._status = head, status
        said = _field(lower, lower, b"\r\nconnection:")
        self._last = b"close" in said or (head[7:8] == b"0" and b"keep-alive" not in said)
        if status in (204, 304):
            return
        if b"chunked" in _field(lower, lower, b"\r\ntransfer-encoding:"):
            self._left = _IN_CHUNKS
            return
        length = _field(lower, lower, b"\r\ncontent-length:")
        if length and not length.isdigit():
            raise BadAnswer(f"an answer of length {length[:40]!r}")
        self._left = int(length) if length else UNTIL_CLOSE
        self._last = self._last or not length

    def _chunks(self) -> Answer | None:
        """Move whole chunks to the body."""
        buffer, at = self._buffer, 0
        while True:
            end = buffer.find(b"\r\n", at)
            if end < 0:
                if len(buffer) - at > LONGEST_CHUNK_LINE:
                    raise BadAnswer("the line before a chunk does not end")
                break
            try:
                size = int(buffer[at:end].partition(b";")[0], 16)
            except ValueError:
                raise BadAnswer(f"a chunk of length {bytes(buffer[at : at + 20])!r}") from None
            if size < 0:
                raise BadAnswer("a chunk of negative length")
            if size == 0:
                if buffer.startswith(b"\r\n", end + 2):
                    extra = len(buffer) > end + 4
                    return Answer(self._status, self._head, bytes(self._body), self._last or extra)
                tail = buffer.find(b"\r\n\r\n", end)
                if tail < 0:
                    break
                return Answer(self._status, self._head, bytes(self._body), self._last or len(buffer) > tail + 4)
            if len(buffer) < end + 2 + size + 2:
                break
            if buffer[end + 2 + size : end + 4 + size] != b"\r\n":
                raise BadAnswer("a chunk that does not end where it said")
            self._body += buffer[end + 2 : end + 2 + size]
            at = end + 4 + size
        del buffer[:at]
        return None


def _field(head: bytes, lower: bytes, name: bytes) -> bytes:
    """``name`` with the line's end before and the colon after it; ``head`` ends with a line's end."""
    at = lower.find(name)
    if at < 0:
        return b""
    at += len(name)
    return head[at : head.find(b"\r\n", at)].strip()
