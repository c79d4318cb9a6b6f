"""Access to the page: whoever has the token that was printed when it started. Pure: a request's words in, an answer out.

The token comes in a URL once, is taken out of it by a redirect, and is kept by the browser as a cookie that no script reads and
no other site sends along with anything but a click on a link. A page of another site that gets its own name to mean this
machine's address (DNS rebinding) is refused by the name that it says.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from ipaddress import ip_address

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
                               "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}  # fmt: skip
"""Of every answer."""
LONGEST = 200
"""Characters of a token that are looked at."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard of the page. ``token`` is the one secret; ``names`` are what a Host header may name beside addresses of this
    machine alone."""

    token: str
    names: frozenset[str] = frozenset({"localhost"})
    _digest: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_digest", hashlib.sha256(self.token.encode()).digest())

    def knows(self, token: str) -> bool:
        """Return whether this is the token; how long that takes tells nothing."""
        given = hashlib.sha256(token[:LONGEST].encode("utf-8", "replace")).digest()
        return hmac.compare_digest(given, self._digest)

    @property
    def cookie(self) -> str:
        """Return the cookie that a browser gets instead of the token: who reads it cannot tell the token by it."""
        return hmac.new(self.token.encode(), b"pumice web: cookie", "sha256").hexdigest()

    def knows_cookie(self, value: str) -> bool:
        return hmac.compare_digest(value[:LONGEST].encode("utf-8", "replace"), self.cookie.encode())

    def knows_header(self, authorization: str) -> bool:
        """``Authorization: Bearer TOKEN``, for scripts."""
        scheme, _, token = authorization.partition(" ")
        return scheme.lower() in ("bearer", "token") and self.knows(token.strip())

    def answers_to(self, host: str) -> bool:
        """Return whether a Host header names this machine: an address that only its own programs reach, or a known name."""
        name = host_of(host)
        if name in self.names:
            return True
        try:
            return ip_address(name).is_loopback
        except ValueError:
            return False


def host_of(header: str) -> str:
    """The name in a Host header, without port and brackets, in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
