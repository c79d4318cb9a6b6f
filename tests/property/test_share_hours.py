"""Share-hours against a judge that knows the lives of the pods: nothing is counted twice and nothing is lost, whenever the
accountant dies, whoever writes beside it, and whatever the clock does."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import pytest

from pumice.wire.held_shares import Share
from pumice.wire.share_hours import DAY, LIMIT, LOST, MEMORY, OTHERS, RECONSTRUCTED, SHARES, Day, Key, parse, render
from pumice_jobs.controllers.share_hours import SERIES, Accountant, ShareOwner

BEGIN = 20_000 * DAY  # a midnight
PODS = int(os.environ.get("PUMICE_SHARE_PODS", "20000"))


@dataclass(frozen=True)
class Life:
    """Seconds since ``BEGIN``; what the API server has of a pod."""

    uid: str
    key: Key
    share: Share
    start: float
    end: float
    deleted: float


class Store:
    """The ConfigMaps: written whole, on condition."""

    def __init__(self) -> None:
        self.days: dict[int, tuple[str, dict[str, str]]] = {}
        self.writes = 0

    def latest(self) -> Day | None:
        if not self.days:
            return None
        number = max(self.days)
        version, data = self.days[number]
        day, bad = parse(number, data)
        assert bad == 0
        day.version = version
        return day

    def write(self, day: Day) -> bool:
        if self.days.get(day.number, ("", {}))[0] != day.version:
            return False
        self.writes += 1
        self.days[day.number] = str(self.writes), render(day)
        return True

    def sums(self) -> dict[Key, list[int]]:
        found: dict[Key, list[int]] = {}
        for number, (_, data) in self.days.items():
            for (_, key), amounts in parse(number, data)[0].rows.items():
                row = found.setdefault(key, [0] * len(amounts))
                for at, amount in enumerate(amounts):
                    row[at] += amount
        return found


class Process:
    """One accountant and what its watch has told it."""

    def __init__(self, lives: list[Life], now: float, boot: float) -> None:
        self.accountant, self.lives, self.reported, self.boot, self.seen = Accountant(), lives, set[str](), boot, now
        self.watch(now)

    def watch(self, now: float) -> None:
        before, self.seen = self.seen, now
        for life in self.lives:
            if life.uid not in self.reported and life.start <= now and life.deleted > before:  # some come and go meanwhile
                ended = int((BEGIN + life.end) * 1000) if life.end <= now else float("inf")
                self.accountant.held(ShareOwner(life.uid, (life.key[0], life.uid), (*life.key[:2], "owner", "one"),
                                            ((life.key, life.share),), int((BEGIN + life.start) * 1000), ended))  # fmt: skip
                self.reported.add(life.uid)
            if life.uid in self.reported:
                if life.end <= now:
                    self.accountant.ended(life.uid, int((BEGIN + life.end) * 1000))
                if life.deleted <= now:
                    self.accountant.ended(life.uid, int((BEGIN + now) * 1000), there=False)

    def adopt(self, store: Store, now: float) -> None:
        at = int((BEGIN + now) * 1000)
        self.accountant.adopt(store.latest() or Day(at // (DAY * 1000), at), at)

    def write(self, store: Store, now: float, *, answer: bool = True) -> None:
        while (day := self.accountant.settle(BEGIN + now, now - self.boot)) is not None:
            if not store.write(day):
                self.adopt(store, now)
                return
            if not answer:  # written, and nobody knows
                self.adopt(store, now)
                return
            self.accountant.written(replace(day, version=store.days[day.number][0]))


def lives_of(rng: random.Random, seconds: int, count: int) -> list[Life]:
    lives = []
    for number in range(count):
        start = rng.uniform(-3600, seconds)
        end = start + rng.expovariate(1 / 7000)
        key = rng.choice("ab"), rng.choice("pq"), rng.choice(("T4", "H100")), "vgpu"
        share = Share(key[2], key[3], rng.randrange(1, 4), rng.random(), rng.random(), rng.random(), 1.0)
        lives.append(Life(f"u{number}", key, share, start, end, end + rng.choice((0.0, rng.uniform(0, 4000)))))
    return lives


def minutes_of(lives: list[Life], begin: float, end: float) -> tuple[dict[Key, float], dict[Key, float]]:
    """The judge: second by second, who was there. Shares and memory."""
    shares, memory = defaultdict[Key, float](float), defaultdict[Key, float](float)
    for life in lives:
        inside = sum(1 for second in range(int(begin), int(end)) if life.start <= second + 0.5 < life.end)
        shares[life.key] += inside * life.share.shares
        memory[life.key] += inside * life.share.memory
    return shares, memory


@pytest.mark.parametrize("seed", range(12))
def test_every_second_of_every_pod_is_counted_once_whenever_the_accountant_dies(seed: int) -> None:
    rng = random.Random(seed)
    seconds = 5 * 3600 if seed % 2 else 30 * 3600  # the second kind goes over midnight
    lives, store, now = lives_of(rng, seconds, 40), Store(), 0.0
    process = Process(lives, now, 0.0)
    process.adopt(store, now)
    now = 60.0
    process.watch(now)
    process.write(store, now)
    unknown = defaultdict[Key, float](float)

    def newcomer() -> Process:
        """One who knows what is there, and of whom nobody knows that they came and went since the record ended."""
        latest = store.latest()
        for life in lives:
            if latest is not None and latest.until / 1000 - BEGIN <= life.start and life.deleted <= now:
                unknown[life.key] += (life.end - life.start) * life.share.shares
        process = Process(lives, now, now)
        process.adopt(store, now)
        return process

    while now < seconds:
        now = min(seconds, now + rng.choice((20.0, 60.0, 300.0, 1500.0)))
        process.watch(now)
        match rng.randrange(8):
            case 0:  # dies, and the next one comes at once
                process = newcomer()
            case 1:  # another leads for a while, of whom this one knows nothing
                newcomer().write(store, now)
            case 2:
                process.write(store, now, answer=False)
            case _:
                process.write(store, now)
    latest = store.latest()
    assert latest is not None
    shares, memory = minutes_of(lives, 0, latest.until / 1000 - BEGIN)
    for key, sums in store.sums().items():
        near = 4.0 * sum(life.share.shares for life in lives if life.key == key)  # seconds: the judge looks at their middles
        gone = sums[LOST] / 1000 + unknown[key]
        assert shares[key] - gone - near <= sums[SHARES] / 1000 <= shares[key] + near, (seed, key)
        if not gone:
            assert sums[MEMORY] / 1000 == pytest.approx(memory[key], abs=near)
    assert {key for key, amount in shares.items() if amount > 5 + unknown[key]} <= store.sums().keys()


def test_pods_that_end_while_nobody_watches_are_read_off_their_timestamps_and_those_that_vanish_are_bounded() -> None:
    share, key = Share("T4", "vgpu", 2, 0.5, 0.5, 0.5, 1.0), ("a", "q", "T4", "vgpu")
    lives = [
        Life("stays", key, share, 0, 90_000, 90_000), Life("ends", key, share, 0, 7200, 90_000),
        Life("vanishes", key, share, 0, 5000, 5000), Life("comes", key, share, 9000, 90_000, 90_000),
    ]  # fmt: skip
    store, process = Store(), Process(lives, 1.0, 0.0)
    process.adopt(store, 0.0)
    process.write(store, 3630.0)  # counted until 3600
    heir = Process(lives, 10_830.0, 10_000.0)
    heir.adopt(store, 10_830.0)
    heir.write(store, 10_830.0)
    (sums,) = store.sums().values()
    whole = [(3600 - 0) * 3, 7200, 3600, 1800]  # all three; then who stays, who ended, who came
    assert sums[SHARES] == sum(whole) * 2 * 1000
    assert sums[RECONSTRUCTED] == sum(whole[1:]) * 2 * 1000
    assert sums[LOST] == 7200 * 2 * 1000  # at most: until the next one came


def test_a_standby_that_saw_a_pod_go_loses_nothing_of_it() -> None:
    share, key = Share("T4", "vgpu", 1, 0.5, 0.5, 0.5, 1.0), ("a", "q", "T4", "vgpu")
    lives, store = [Life("u", key, share, 0, 4000, 4000)], Store()
    leader, standby = Process(lives, 1.0, 0.0), Process(lives, 1.0, 0.0)
    leader.adopt(store, 0.0)
    leader.write(store, 3630.0)
    standby.watch(4000.0)
    standby.adopt(store, 4500.0)
    standby.write(store, 4530.0)
    (sums,) = store.sums().values()
    assert (sums[SHARES], sums[LOST]) == (4_000_000, 0)


def test_a_clock_that_jumps_for_a_moment_counts_nothing_and_one_that_goes_back_counts_nothing_twice() -> None:
    share, key = Share("T4", "vgpu", 1, 1.0, 1.0, 1.0, 1.0), ("a", "q", "T4", "vgpu")
    store, process = Store(), Process([Life("u", key, share, 0, 10**6, 10**6)], 1.0, 0.0)
    accountant = process.accountant
    process.adopt(store, 0.0)
    for wall, steady in ((630, 630), (80_000, 930), (1230, 1230), (1530, 1530), (100, 1830), (2130, 2130), (2430, 2430)):
        while (day := accountant.settle(BEGIN + wall, float(steady))) is not None:
            assert store.write(day)
            accountant.written(replace(day, version=store.days[day.number][0]))
    (sums,) = store.sums().values()
    assert sums[SHARES] == 2_400_000


def test_ten_thousand_namespaces_fit_and_the_sum_stays_what_it_is() -> None:
    accountant, store = Accountant(), Store()
    accountant.adopt(Day(BEGIN // DAY, BEGIN * 1000), BEGIN * 1000)
    for number in range(10_000):
        name = f"namespace-of-some-length-{number}"
        share = Share("NVIDIA-NVIDIA A100-SXM4-80GB", "vgpu", 1, number / 10_000, 0.5, 0.5, 1.0)
        accountant.held(ShareOwner(f"u{number}", (name, "p"), (name, "q", "o", "r"), (((name, "q", share.model, "vgpu"), share),),
                               BEGIN * 1000))  # fmt: skip
    for minutes in (10, 20, 70):
        day = accountant.settle(BEGIN + minutes * 60, minutes * 60.0)
        assert day is not None
        assert store.write(day)
        assert sum(map(len, render(day).values())) < 900_000
        assert len(render(day)["rows"]) <= LIMIT
        accountant.written(replace(day, version=store.days[day.number][0]))
    sums = store.sums()
    assert sum(row[SHARES] for row in sums.values()) == 10_000 * (70 * 60 - 30) * 1000
    assert any(key[0] == OTHERS for key in sums)
    assert len(accountant.totals) <= SERIES + 1
    assert sum(row[SHARES] for row in accountant.totals.values()) == 10_000 * (70 * 60 - 30) * 1000


@pytest.mark.parametrize("seed", range(6))
def test_a_record_that_is_damaged_gives_what_is_whole(seed: int) -> None:
    rng = random.Random(seed)
    process, store = Process(lives_of(rng, 3600, 30), 3600.0, 0.0), Store()
    process.adopt(store, 0.0)
    process.write(store, 7200.0)
    ((_, data),) = store.days.values()
    for _ in range(300):
        part = rng.choice(("rows", "open", "runs"))
        text = data[part]
        at = rng.randrange(len(text) + 1)
        damaged = text[:at] + rng.choice(("", "\t", "\n", "x" * 9, "-1", "9" * 40, "é", "\x00")) + text[at + rng.randrange(9) :]
        parse(BEGIN // DAY, {**data, part: damaged})
    for until in ("", "x", "-1", "9" * 30, "１"):
        with pytest.raises(ValueError, match="until"):
            parse(BEGIN // DAY, {**data, "until": until})


def test_tens_of_thousands_of_pods_that_come_and_go_are_counted_to_the_second() -> None:
    """Beside the sums of their lives. Prints the CPU time that it takes; ``PUMICE_SHARE_PODS=100000`` plays so many."""
    pods, last = PODS, int(PODS * 0.4)
    rng, accountant, store = random.Random(4), Accountant(), Store()
    accountant.adopt(Day(BEGIN // DAY, BEGIN * 1000), BEGIN * 1000)
    wanted = defaultdict[tuple[str, str], float](float)
    running: list[tuple[float, int]] = []
    begun = time.process_time()
    for number in range(pods):
        at = number * 0.4
        space, queue, cards = f"team-{number % 40}", f"q{number % 5}", number % 3 + 1
        key = space, queue, "NVIDIA-NVIDIA A100-SXM4-80GB", "vgpu"
        accountant.held(ShareOwner(f"u{number}", (space, f"p{number}"), (space, queue, "o", "r"),
                                   ((key, Share(key[2], "vgpu", cards, 0.5, 0.5, 0.5, 1.0)),),
                                   int((BEGIN + at) * 1000)))  # fmt: skip
        end = at + rng.expovariate(1 / 600)
        heappush(running, (end, number))
        wanted[space, queue] += cards * (min(int((BEGIN + end) * 1000), (BEGIN + last) * 1000) - int((BEGIN + at) * 1000))
        while running[0][0] <= at:
            ended, gone = heappop(running)
            accountant.ended(f"u{gone}", int((BEGIN + ended) * 1000))
            accountant.ended(f"u{gone}", int((BEGIN + at) * 1000), there=False)
        if number % 250 == 249:
            while (day := accountant.settle(BEGIN + at, at)) is not None:
                assert store.write(day)
                accountant.written(replace(day, version=store.days[day.number][0]))
    while running:
        ended, gone = heappop(running)
        accountant.ended(f"u{gone}", int((BEGIN + min(ended, last)) * 1000), there=False)
    for wall in (last, last + 600):
        while (day := accountant.settle(BEGIN + wall, float(wall))) is not None:
            assert store.write(day)
            accountant.written(replace(day, version=store.days[day.number][0]))
    print(f"{pods:,} pods in {time.process_time() - begun:.1f} s of CPU, {store.writes} writes")
    found = defaultdict[tuple[str, str], int](int)
    for (space, queue, *_), row in store.sums().items():
        found[space, queue] += row[SHARES] + row[LOST]
    assert dict(found) == {where: pytest.approx(amount, abs=2500) for where, amount in wanted.items()}
