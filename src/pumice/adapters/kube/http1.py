"""An answer of HTTP/1.1, read by llhttp (the parser of Node.js, through httptools) from the bytes as they come.

Pure: bytes in, an answer out.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import httptools

from pumice.model.errors import PumiceError

LONGEST_HEAD = 64 * 1024


class BadAnswer(PumiceError):
    """The server's bytes are no HTTP/1.1 answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``fields`` by their names in lower case. ``last``: the connection cannot be used again."""

    status: int
    fields: Mapping[bytes, bytes]
    body: bytes
    last: bool

    def field(self, name: str) -> str:
        """The field of that name; empty when there is none."""
        return self.fields.get(name.lower().encode(), b"").decode("latin-1").strip()

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
    """Reads the answers of one connection, one after the other.

    Call ``begin``, feed what arrives until it gives the answer; ``eof`` when the server has closed.
    """

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.begin()

    def begin(self) -> None:
        """Wait for the next answer, where the one before was not the ``last``."""
        self._arrived = 0
        self._fields: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._headed = False
        self._answer: Answer | None = None

    @property
    def begun(self) -> bool:
        """True if anything of the answer has arrived."""
        return self._arrived > 0

    def feed(self, data: bytes) -> Answer | None:
        """Raises BadAnswer."""
        self._arrived += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise BadAnswer("the server changes to a protocol that nobody asked for") from error
        except httptools.HttpParserError as error:
            if self._answer is None:
                raise BadAnswer(f"no answer of HTTP/1.1: {error}: {data[:40]!r}") from error
            self._answer = replace(self._answer, last=True)
        if not self._headed and self._arrived > LONGEST_HEAD:
            raise BadAnswer(f"the head of an answer is longer than {LONGEST_HEAD} bytes")
        return self._answer

    def eof(self) -> Answer:
        """The server has closed. Raises BadAnswer when the answer is not whole."""
        if self._headed and not self._fields.keys() & {b"content-length", b"transfer-encoding"}:
            return self._made()
        raise BadAnswer("the connection ended in the middle of an answer" if self.begun else "the connection ended")

    def _made(self) -> Answer:
        last = not self._parser.should_keep_alive()
        return Answer(self._parser.get_status_code(), self._fields, b"".join(self._body), last)

    # -- what httptools calls

    def on_message_begin(self) -> None:
        self._fields, self._body = {}, []
        if self._answer is not None:  # nobody asked for what follows: whose answer it is cannot be known
            self._answer = replace(self._answer, last=True)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        self._headed = self._parser.get_status_code() >= 200  # those before are promises, and another head follows

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._headed and self._answer is None:
            self._answer = self._made()
