"""Kept connections to one server, each with one request under way: a request is one write, its answer one callback.

An answer of HTTP/1.1, read by llhttp (the parser of Node.js, through httptools) from the bytes as they come.

Pure: bytes in, an answer out.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import httptools

from pumice.model.errors import PumiceError

LONGEST_HEAD = 64 * 1024


class BadAnswer(PumiceError):
    """The server's bytes are no HTTP/1.1 answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of HTTP. ``fields`` by their names in lower case. ``last``: the connection cannot be used again."""

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


KEPT = 55.0
"""Seconds after which an idle connection is not used again: servers and what stands between begin to forget it then."""
REPEATED = frozenset({"GET", "PUT", "DELETE"})
"""Methods that may be sent twice: they are sent again when a kept connection turns out to have ended before anything was
answered."""


class Connection(asyncio.Protocol):
    """One connection."""

    __slots__ = ("_answer", "_loop", "_reader", "_since", "_transport", "due", "pool")

    def __init__(self, pool: Connections) -> None:
        self.pool = pool
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._reader = AnswerReader()
        self._since = self._loop.time()
        self.due = 0.0
        """When the answer that is awaited has not come in time."""

    async def ask(self, message: bytes, timeout: float) -> Answer:
        """Send and wait. Raises BadAnswer, ConnectionError or TimeoutError; the connection is gone then."""
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionResetError("the connection has ended")
        self._answer = expected = self._loop.create_future()
        self._reader.begin()
        self.due = self._loop.time() + timeout
        self.pool.await_answer(self)
        try:
            transport.write(message)
            answer: Answer = await expected
            return answer
        except BaseException:  # cancelled too: nobody takes this answer any more, so nobody may use the connection
            self.abort()
            raise
        finally:
            self.pool.waiting.discard(self)
            self._answer = None

    @property
    def untouched(self) -> bool:
        """True if nothing has been answered to the last request."""
        return not self._reader.begun

    @property
    def fresh(self) -> bool:
        """True if it may be used again."""
        alive = self._transport is not None and not self._transport.is_closing()
        return alive and self._loop.time() - self._since < self.pool.kept

    def late(self) -> None:
        """No answer came in time."""
        self._fail(TimeoutError())

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # nobody asked: a server that says why it hangs up
            self.abort()
            return
        try:
            answer = self._reader.feed(data)
        except BadAnswer as error:
            self._fail(error)
            return
        if answer is not None:
            self._take(answer)

    def eof_received(self) -> None:
        self._ended()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.pool.forget(self)
        self._ended(error)

    # -- what follows

    def _take(self, answer: Answer) -> None:
        self._since = self._loop.time()
        self._reader.begin()  # lets go of the body: this connection may rest for long
        if answer.last:
            self.abort()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _ended(self, error: Exception | None = None) -> None:
        if self._answer is None or self._answer.done():
            return
        try:
            self._take(self._reader.eof())
        except BadAnswer as bad:
            self._fail(error if isinstance(error, OSError) else ConnectionResetError(str(bad)))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


@dataclass(slots=True)
class Connections:
    """The connections to one server. How many there are is the caller's business: there is one for each request under way,
    and the last used is used first, so that few stay warm and the rest run out."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    kept: float = KEPT
    waiting: set[Connection] = field(default_factory=set)
    """Those that wait for an answer. One timer wakes for the first of them that will have waited too long: a timer for each
    request would be made and taken away thousands of times without ever ringing."""
    _timer: asyncio.TimerHandle | None = None
    _all: set[Connection] = field(default_factory=set)
    _idle: list[Connection] = field(default_factory=list)

    async def ask(self, verb: str, message: bytes, timeout: float) -> Answer:
        """One request. Raises BadAnswer, OSError (what became of the request is unknown) or TimeoutError."""
        connection = self._warm()
        if connection is not None:
            try:
                return await self._ask(connection, message, timeout)
            except ConnectionError:
                if verb not in REPEATED or not connection.untouched:
                    raise
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(timeout):
            connection = await self._open()
        return await self._ask(connection, message, timeout - (asyncio.get_running_loop().time() - began))

    async def _ask(self, connection: Connection, message: bytes, timeout: float) -> Answer:
        try:
            answer = await connection.ask(message, timeout)
        except TimeoutError:
            self._end_idle()  # the way may be cut: they lead to the same end, and each would cost a timeout
            raise
        if connection.fresh:
            self._idle.append(connection)
        return answer

    def await_answer(self, connection: Connection) -> None:
        self.waiting.add(connection)
        if self._timer is None or connection.due < self._timer.when():
            self._wake_at(connection.due)

    def _wake_at(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        """Give up what is late; the others are looked at when the first of them would be."""
        self._timer, now = None, asyncio.get_running_loop().time()
        for connection in [each for each in self.waiting if each.due <= now]:
            self.waiting.discard(connection)
            connection.late()
        if self.waiting:
            self._wake_at(min(each.due for each in self.waiting))

    def _warm(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.fresh:
                return connection
            connection.abort()
        return None

    async def _open(self) -> Connection:
        name = (self.server_name or self.host) if self.tls is not None else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(self), self.host, self.port, ssl=self.tls, server_hostname=name, happy_eyeballs_delay=0.25
        )
        self._all.add(connection)
        return connection

    def _end_idle(self) -> None:
        for connection in list(self._idle):
            connection.abort()

    def forget(self, connection: Connection) -> None:
        """It has ended."""
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def close(self) -> None:
        """End them all, and give their transports the turn that they need for it."""
        for connection in list(self._all):
            connection.abort()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await asyncio.sleep(0)
