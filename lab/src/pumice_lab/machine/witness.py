"""Usage of each card by each process, as the machine recorded it, apart from anything that libvgpu counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from pumice_lab.machine import layout


class Share(Struct, frozen=True):
    """One process on one card. Bytes now and at most, time in ns; a process that has ended holds 0 bytes.

    ``requested`` is the sum of the sizes asked for and not freed (``leaked`` at the end), ``context`` the contexts'
    part of ``bytes``. ``killed`` tells a process found dead from one that ended by itself. ``managed`` is the
    part of ``bytes`` that gives way to others, ``host`` what has.
    """

    pid: int
    name: str
    card: int
    bytes: int
    peak: int
    requested: int
    context: int
    busy_ns: int
    submitted_ns: int
    launches: int
    live: bool
    killed: bool = False
    managed: int = 0
    host: int = 0


class Witness(Struct, frozen=True):
    """Every share, living processes first, then ended ones from the oldest on (the last 256 are kept)."""

    shares: tuple[Share, ...]

    def of(self, pid: int, card: int = 0) -> Share | None:
        """The newest share of a process on a card, or None when it never used the card."""
        found = [share for share in self.shares if share.pid == pid and share.card == card]
        return next((share for share in found if share.live), found[-1] if found else None)

    def busy_ns(self, card: int) -> int:
        return sum(share.busy_ns for share in self.shares if share.card == card)

    def bytes(self, card: int) -> int:
        return sum(share.bytes for share in self.shares if share.card == card)

    def live(self) -> tuple[Share, ...]:
        return tuple(share for share in self.shares if share.live)


_LIVE = 2  # machine_process.state


def read_witness(state: layout.State) -> Witness:
    """The accounts of the living and the summaries of the ended."""
    return Witness((*_living(state), *_ended(state)))


def _living(state: layout.State) -> Iterator[Share]:
    for process in state.processes[: min(state.process_high, layout.PROCESSES)]:
        if process.state != _LIVE:
            continue
        for card in range(state.cards):
            account = process.accounts[card]
            if account.peak_bytes or account.submitted_ns or account.launches:
                yield Share(
                    pid=process.pid,
                    name=_text(process.name),
                    card=card,
                    bytes=account.bytes,
                    peak=account.peak_bytes,
                    requested=account.requested_bytes,
                    context=account.context_bytes,
                    busy_ns=account.served_ns,
                    submitted_ns=account.submitted_ns,
                    launches=account.launches,
                    live=True,
                    managed=account.managed_bytes,
                    host=account.host_bytes,
                )


def _ended(state: layout.State) -> Iterator[Share]:
    past: Iterable[layout.Past] = sorted((entry for entry in state.history if entry.sequence), key=lambda e: e.sequence)
    for entry in past:
        for card in range(state.cards):
            summary = entry.cards[card]
            if summary.peak_bytes or summary.submitted_ns or summary.launches:
                yield Share(
                    pid=entry.pid,
                    name=_text(entry.name),
                    card=card,
                    bytes=0,
                    peak=summary.peak_bytes,
                    requested=summary.leaked_bytes,
                    context=0,
                    busy_ns=summary.busy_ns,
                    submitted_ns=summary.submitted_ns,
                    launches=summary.launches,
                    live=False,
                    killed=bool(entry.killed),
                )


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
