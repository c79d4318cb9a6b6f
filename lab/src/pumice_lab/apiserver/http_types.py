"""Requests and responses without sockets: what the transport hands in and gets back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pumice_lab.apiserver.bodies import decode_body, decode_json, encode
from pumice_lab.apiserver.errors import ApiFailure, bad_request

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class User:
    """The authenticated user of a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
ADMIN = User("kubernetes-admin", groups=("system:masters", "system:authenticated"))


@dataclass(slots=True)
class Request:
    """One call. ``headers`` have lower-case names; a query parameter may occur more than once."""

    method: str
    path: str
    query: Mapping[str, list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: User = ADMIN
    warnings: list[str] = field(default_factory=list)  # become Warning headers of the response
    twice: list[str] = field(default_factory=list)  # keys that stood twice in the body, as they are told
    admission: Any = None  # webhooks.Admission, where somebody has to be asked about what this writes
    conversion: Any = None  # conversion.Conversion: what its objects are in other versions
    deleted: dict[tuple[str, str], bytes] = field(default_factory=dict)  # of a collection, what is gone already
    plain: bytes = b""  # the body as plain JSON, where it was read before

    def param(self, name: str, default: str = "") -> str:
        values = self.query.get(name)
        return values[0] if values else default

    def flag(self, name: str) -> bool:
        return self.param(name).lower() in ("true", "1")

    def number(self, name: str) -> int | None:
        text = self.param(name)
        if not text:
            return None
        try:
            number = int(text)
        except ValueError:
            raise bad_request(f"strconv.ParseInt: parsing {name} {text[:60]!r}: invalid syntax") from None
        if not -(1 << 63) <= number < 1 << 63:
            raise bad_request(f"strconv.ParseInt: parsing {name}: value out of range")
        return number

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def manager(self) -> str:
        """The field manager: as asked, else the program's name from the user agent (Kubernetes does the same)."""
        asked = self.param("fieldManager")
        return asked or self.headers.get("user-agent", "").partition("/")[0][:128] or "unknown"

    def decoded(self) -> Any:
        """The body, whatever it is. Raises BadRequest, UnsupportedMediaType or RequestEntityTooLarge."""
        return decode_json(self.plain) if self.plain else decode_body(self.body, self.content_type, self.twice)

    def read_body(self) -> None:
        """Does once what ``decoded`` would do each time. It takes a second of a large body: to be called in a thread."""
        self.plain = encode(self.decoded())

    def value(self) -> Json:
        """The body as an object. Raises as ``decoded``."""
        value = self.decoded()
        if not isinstance(value, dict):
            raise bad_request("the body is not an object")
        return value


@dataclass(frozen=True, slots=True)
class Tunnel:
    """A connection that the transport carries to a kubelet: where to, and with which of its paths."""

    url: str
    node: str


@dataclass(slots=True)
class Response:
    """An answer: a body, or a stream of chunks, or a tunnel."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    parts: Iterable[bytes] | None = None  # instead of a body, when that is too long to be made or sent at once
    stream: AsyncIterator[bytes] | None = None
    tunnel: Tunnel | None = None
    gathered: tuple[tuple[Tunnel, ...], Callable[[list[tuple[str, bytes]]], Response]] | None = None
    """Nodes to ask, and how their answers are merged."""
    warnings: list[str] = field(default_factory=list)

    def whole(self) -> bytes:
        """The body, put together if it comes in parts. To be asked once."""
        return self.body if self.parts is None else b"".join(self.parts)

    def json(self) -> Json:
        return decode_json(self.whole())  # type: ignore[no-any-return]


SLICE = 64 * 1024
SLICE_PARTS = 256
"""Parts may be short, or left out, and cost time all the same."""


def slices(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts joined to pieces of about one slice, or of fewer bytes where they are many."""
    held: list[bytes] = []
    size = 0
    for part in parts:
        held.append(part)
        size += len(part)
        if size >= SLICE or len(held) >= SLICE_PARTS:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def reply(value: Json, code: int = 200) -> Response:
    return Response(code, encode(value))


def failure(problem: ApiFailure) -> Response:
    response = Response(problem.code, encode(problem.status()))
    if retry := problem.details.get("retryAfterSeconds"):
        response.headers["Retry-After"] = str(retry)
    return response


@dataclass(frozen=True, slots=True)
class Target:
    """The resource that a path names: ``/apis/GROUP/VERSION[/namespaces/NS]/PLURAL[/NAME[/SUBRESOURCE[/REST]]]``."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str = ""
    subresource: str = ""
    rest: str = ""
    watch: bool = False  # the old /watch/ prefix


def target_of(path: str) -> Target | None:
    """The resource that a path names, or None when it names none (discovery, health)."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    # /namespaces/NS/status and /namespaces/NS/finalize are subresources of the namespace itself.
    if (
        rest[0] == "namespaces"
        and len(rest) >= 3
        and not (not group and len(rest) == 3 and rest[2] in ("status", "finalize"))
    ):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    return Target(group, version, namespace, rest[0], name, subresource, "/".join(rest[3:]), watch)
