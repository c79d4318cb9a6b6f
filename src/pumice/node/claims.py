"""The shares of a node's cards that claims hold (Dynamic Resource Allocation), as their driver books them."""

from __future__ import annotations

import msgspec


class ClaimSlice(msgspec.Struct, frozen=True):
    """Where a MIG slice lies on its card, and the slice's UUID once it is cut. ``size``: memory slices under it."""

    profile: str
    start: int
    size: int
    uuid: str = ""

    @property
    def cover(self) -> int:
        """The memory slices under it, as a mask."""
        return (1 << self.size) - 1 << self.start

    def __str__(self) -> str:
        return f"{self.profile}@{self.start}"


class ClaimShare(msgspec.Struct, frozen=True):
    """A device of a claim: bytes and percent of a card, a MIG ``slice``, or ``whole``. ``share`` is the allocation's shareID.
    ``admin``: the card is only looked at (adminAccess), beside whoever has it, and nothing of it is held."""

    request: str
    device: str
    card: str
    memory: int = 0
    cores: int = 0
    whole: bool = False
    share: str = ""
    slice: ClaimSlice | None = None
    admin: bool = False

    @property
    def visible(self) -> str:
        """The UUID of what a container is given."""
        return self.slice.uuid if self.slice is not None else self.card

    @property
    def limited(self) -> bool:
        """Return whether the library holds its containers to it: a whole card has none, a slice is held by the hardware, and
        who looks at a card runs nothing there."""
        return not (self.whole or self.admin) and self.slice is None


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

    @property
    def owner(self) -> str:
        """Names the claim with its devices in the journal of MIG slices: allocated anew it is another, and old ones may go."""
        return f"{self.uid}/{','.join(share.device for share in self.shares if share.slice is not None)}"
