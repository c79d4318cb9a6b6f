"""The shares of a node's cards that claims hold (Dynamic Resource Allocation), as their driver books them."""

from __future__ import annotations

import msgspec


class ClaimShare(msgspec.Struct, frozen=True):
    """A device of a claim: bytes and percent of a card, or ``whole``. ``share`` is the allocation's shareID."""

    request: str
    device: str
    card: str
    memory: int = 0
    cores: int = 0
    whole: bool = False
    share: str = ""


class PreparedClaim(msgspec.Struct, frozen=True):
    """A claim with its devices. ``checked``: its cards were found free after it was booked; until then nobody was answered."""

    uid: str
    namespace: str
    name: str
    shares: tuple[ClaimShare, ...]
    checked: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
