"""Schedulers of one cluster with a shard each: a node is used by one of them, whatever moves and whoever dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, Daemon, create
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli import main as cli
from pumice.model.errors import Unavailable
from pumice.ports.cluster import ApiError
from pumice.wire import kinds
from pumice.wire.sharding import NODE_SHARDS, SHARD, USED_BY, Mode, Source

DURATION, RETRY = 15.0, 2.0
SOURCES = [Source.NODESHARDS, Source.LABELS]


class Place:
    """A cluster whose nodes are in shards by one of the two sources."""

    def __init__(self, cluster: FaultyCluster, clock: VirtualClock, source: Source) -> None:
        self.cluster, self.clock, self.source = cluster, clock, source
        self.daemons: list[Daemon] = []

    async def assign(self, **shards: Iterable[str]) -> None:
        """Say which nodes each shard is to have, as an administrator or upstream's controller does."""
        if self.source is Source.NODESHARDS:
            for name, names in shards.items():
                spec = {"spec": {"nodesDesired": sorted(names)}}
                body = {"apiVersion": "shard.volcano.sh/v1alpha1", "kind": "NodeShard", "metadata": {"name": name}, **spec}
                try:
                    await self.cluster.create(NODE_SHARDS, body)
                except ApiError:
                    await self.cluster.patch(NODE_SHARDS, name, spec)
            return
        of = {one: name for name, names in shards.items() for one in names}
        for one in (await self.cluster.list(kinds.NODES))["items"]:
            name = one["metadata"]["name"]
            await self.cluster.patch(kinds.NODES, name, {"metadata": {"labels": {SHARD: of.get(name)}}})

    async def used(self) -> dict[str, set[str]]:
        """By shard, the nodes that its scheduler says it uses."""
        found: dict[str, set[str]] = {}
        if self.source is Source.NODESHARDS:
            for one in (await self.cluster.list(NODE_SHARDS))["items"]:
                found[one["metadata"]["name"]] = set(one.get("status", {}).get("nodesInUse") or ())
            return found
        for one in (await self.cluster.list(kinds.NODES))["items"]:
            if user := one["metadata"].get("annotations", {}).get(USED_BY):
                found.setdefault(user, set()).add(one["metadata"]["name"])
        return found

    def scheduler(self, shard: str, identity: str = "", seed: int = 0, **settings: Any) -> Daemon:
        own = Settings(leader_elect=True, identity=identity or shard, sharding=Mode.HARD, shard=shard, shard_peers=("a", "b"),
                       shard_source=self.source, **settings)  # fmt: skip
        self.daemons.append(Daemon(self.cluster, self.clock, own, seed=seed or len(self.daemons) + 1))
        return self.daemons[-1]

    async def run(self, seconds: float, every: float = 0.25) -> None:
        """Let time pass; no node is placed on by two at any moment."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            await self.clock.sleep(every)
            self.no_node_is_used_by_two()

    def no_node_is_used_by_two(self) -> None:
        seen: dict[str, str] = {}
        for one in self.daemons:
            shards = one.scheduler.engine.state.shards
            if one.task.done():
                continue
            for name in shards.ours:
                assert seen.setdefault(name, shards.mine) == shards.mine, f"{name}: {seen[name]} and {shards.mine}"

    async def nodes_of(self, prefix: str) -> list[str]:
        return [p["spec"].get("nodeName", "") for name, p in (await self.cluster.pods()).items() if name.startswith(prefix)]

    async def until(self, holds: Callable[[], Any], seconds: float = 30.0) -> None:
        end = self.clock.monotonic() + seconds
        while not await holds():
            assert self.clock.monotonic() < end, (await self.used(), await self.cluster.pods())
            await self.clock.sleep(0.1)
            self.no_node_is_used_by_two()


@asynccontextmanager
async def place(source: Source, *nodes: dict[str, Any]) -> AsyncIterator[Place]:
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    body = {"metadata": {"name": "volcano-scheduler-configmap"}, "data": {"volcano-scheduler.conf": CONF}}
    await cluster.create(kinds.CONFIGMAPS, body, "volcano-system")
    for one in nodes:
        await cluster.put_node(one)
    found = Place(cluster, clock, source)
    yield found
    for one in found.daemons:
        with suppress(Unavailable, asyncio.CancelledError):
            await one.close()


async def kill(daemon: Daemon) -> None:
    """As SIGKILL: nothing is finished, nothing given back."""
    keeper, daemon.scheduler._keeper = daemon.scheduler._keeper, None
    running = [daemon.task, *daemon.scheduler.binder._running, *([keeper] if keeper is not None else [])]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def four() -> Iterator[dict[str, Any]]:
    return (node(f"n{i}", cards=2) for i in range(1, 5))


@pytest.mark.parametrize("source", SOURCES)
def test_two_schedulers_place_on_their_own_nodes_and_each_pod_is_tried_by_one(source: Source) -> None:
    async def story() -> None:
        async with place(source, *four()) as here:
            await here.assign(a=["n1", "n2"], b=["n3", "n4"])
            a, b = here.scheduler("a"), here.scheduler("b")
            bindings: list[str] = []
            here.cluster.fault = lambda verb, path: bindings.append(path) if path.endswith("/binding") else None  # type: ignore[func-returns-value]
            await create(here.cluster, *(pod(f"p{i}", mib=1000) for i in range(24)))
            await here.until(lambda: a.bound(*(f"p{i}" for i in range(24))))
            await here.run(5)
            assert await here.used() == {"a": {"n1", "n2"}, "b": {"n3", "n4"}}
            assert len(bindings) == len(set(bindings)) == 24
            there = await here.nodes_of("p")
            assert min(sum(one in names for one in there) for names in (("n1", "n2"), ("n3", "n4"))) >= 4
            for one in (a, b):
                assert one.scheduler.engine.state.problems == {}
            await a.audit()

    run_virtually(story())


@pytest.mark.parametrize("source", SOURCES)
def test_each_scheduler_has_a_lease_of_its_shard_and_is_followed_by_its_own_stand_by(source: Source) -> None:
    async def story() -> None:
        async with place(source, *four()) as here:
            await here.assign(a=["n1", "n2"], b=["n3", "n4"])
            first, other = here.scheduler("a", "first"), here.scheduler("b")
            for one in (first, other):
                await asyncio.wait_for(one.ready.wait(), 10)
            stand_by = here.scheduler("a", "second")
            await here.run(10)
            assert not stand_by.ready.is_set()
            names = {one["metadata"]["name"] for one in (await here.cluster.list(kinds.LEASES, "volcano-system"))["items"]}
            assert names == {"volcano-a", "volcano-b"}
            await kill(first)
            began = here.clock.monotonic()
            await here.until(lambda: _is(stand_by.scheduler.engine.state.shards.ours == {"n1", "n2"}), DURATION + 2 * RETRY)
            assert here.clock.monotonic() - began > DURATION - RETRY
            await create(here.cluster, *(pod(f"p{i}", mib=1000) for i in range(12)))
            await here.until(lambda: other.bound(*(f"p{i}" for i in range(12))))
            await other.audit()

    run_virtually(story())


async def _is(holds: bool) -> bool:
    return holds


@pytest.mark.parametrize("source", SOURCES)
def test_a_node_moves_once_the_binding_on_its_way_has_come_in_and_no_card_is_given_away_twice(source: Source) -> None:
    async def story() -> None:
        async with place(source, node("n1", cards=1, mib=8000), node("n2")) as here:
            await here.assign(a=["n1", "n2"], b=[])
            a, b = here.scheduler("a"), here.scheduler("b")
            await here.until(lambda: _is(len(a.scheduler.engine.state.shards.ours) == 2))
            gate, request = asyncio.Event(), here.cluster.request

            async def slow(verb: str, path: str, **options: Any) -> bytes:
                if path.endswith("/p/binding"):
                    await gate.wait()
                return await request(verb, path, **options)

            here.cluster.request = slow  # type: ignore[method-assign]
            await create(here.cluster, pod("p", mib=8000))
            await here.until(lambda: _is(a.scheduler.binder.in_flight == 1))
            await here.assign(a=["n2"], b=["n1"])
            await here.run(20)
            assert a.scheduler.engine.state.shards.ours == {"n2"}, "nothing more is placed there"
            assert b.scheduler.engine.state.shards.ours == set(), "and nobody else does as long as the Binding may come in"
            await create(here.cluster, pod("q", mib=8000))
            await here.run(5)
            gate.set()
            await here.until(lambda: _is(b.scheduler.engine.state.shards.ours == {"n1"}))
            await here.run(10)
            assert await here.nodes_of("p") == ["n1"]
            assert await here.nodes_of("q") == [""], "the card is taken"
            await a.audit()
            held = b.scheduler.engine.state.ledger.by_node["n1"]
            assert len(held) == 1
            await here.cluster.delete(kinds.PODS, "p", "default", grace=0)
            await here.until(lambda: b.bound("q"))
            await b.audit()

    run_virtually(story())


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("beside", [0, 70])
def test_a_node_that_comes_waits_until_the_watch_has_shown_the_pods_that_were_bound_there(source: Source, beside: int) -> None:
    """However late the watch is, and however many nodes come at once; those without such a pod come at once."""
    async def story() -> None:
        others = [f"m{i}" for i in range(beside)]
        async with place(source, node("n1", cards=1, mib=8000), node("n2"), *map(node, others)) as here:
            await here.assign(a=["n1", "n2", *others], b=[])
            a, b = here.scheduler("a"), here.scheduler("b")
            await here.until(lambda: _is(len(a.scheduler.engine.state.shards.ours) == 2 + beside))
            informers = b.scheduler.informers
            late: list[Any] = []
            behind, informers.enter = informers.enter, lambda value, _line=None: late.append(value)  # type: ignore[assignment, return-value]
            await create(here.cluster, pod("p", mib=8000))
            await here.until(lambda: a.bound("p"))
            await here.assign(a=["n2"], b=["n1", *others])
            await here.run(60)
            assert b.scheduler.engine.state.shards.ours == set(others)
            assert late
            informers.enter = behind
            for value in late:
                behind(value)
            await here.until(lambda: _is(b.scheduler.engine.state.shards.ours == {"n1", *others}))
            await create(here.cluster, pod("q", mib=8000))
            await here.run(10)
            assert await here.nodes_of("q") == [""], "the card is taken"

    run_virtually(story())


@pytest.mark.parametrize("source", SOURCES)
def test_a_binding_that_was_decided_before_its_node_moved_is_not_sent_and_gives_its_cards_back(source: Source) -> None:
    async def story() -> None:
        async with place(source, node("n1", cards=2), node("n2", cards=2)) as here:
            await here.assign(a=["n1"], b=["n2"])
            a, b = here.scheduler("a", bind_concurrency=1), here.scheduler("b")
            await here.until(lambda: _is(bool(a.scheduler.engine.state.shards.ours and b.scheduler.engine.state.shards.ours)))
            gate, request = asyncio.Event(), here.cluster.request

            async def slow(verb: str, path: str, **options: Any) -> bytes:
                if path.endswith("/binding"):
                    await gate.wait()
                return await request(verb, path, **options)

            here.cluster.request = slow  # type: ignore[method-assign]
            await create(here.cluster, *(pod(f"p{i}", mib=1000) for i in range(16)))
            await here.until(lambda: _is(a.scheduler.binder.in_flight > 2))
            await here.assign(a=[], b=["n1", "n2"])
            await here.run(5)
            gate.set()
            await here.until(lambda: b.bound(*(f"p{i}" for i in range(16))), 60)
            await here.run(10)
            assert (await here.used())["b"] == {"n1", "n2"}
            assert not (await here.used()).get("a")
            await b.audit()
            for one in (a, b):
                assert len(one.scheduler.engine.state.ledger.placements) == 16

    run_virtually(story())


@pytest.mark.parametrize("seed", range(6))
def test_whatever_moves_fails_and_dies_no_node_is_used_by_two_and_in_the_end_every_pod_has_a_place(seed: int) -> None:
    """A random story: nodes move between shards, schedulers are killed and followed, requests fail or lose their answers."""

    async def story() -> None:
        rng, names = Random(seed), [f"n{i}" for i in range(6)]
        async with place(SOURCES[seed % 2], *(node(name, cards=2) for name in names)) as here:
            await here.assign(a=names[:3], b=names[3:])
            for at, shard in enumerate("aabb"):
                here.scheduler(shard, f"{shard}{at}")
            await here.run(5)
            failing = 0.0

            def fault(verb: str, path: str) -> Any:
                if rng.random() >= failing or (verb == "GET" and path.endswith("/leases")):
                    return None
                return ApiError(rng.choice((409, 429, 500, 504)), "Fault", "told to fail"), rng.random() < 0.5

            here.cluster.fault = fault  # type: ignore[method-assign]
            for step in range(20):
                match rng.randrange(6):
                    case 0 | 1:
                        failing_before, failing = failing, 0.0
                        size = rng.choice((1, 1, 3))
                        gang = [group(f"g{step}", minimum=size)] if size > 1 else []
                        named = {"group": f"g{step}"} if size > 1 else {}
                        await create(here.cluster, *gang, *(
                            pod(f"p{step}-{i}", mib=rng.choice((1000, 4000)), owner=f"o{step}", **named) for i in range(size)))
                        failing = failing_before
                    case 2 | 3:
                        failing_before, failing = failing, 0.0
                        line = rng.sample(names, len(names))
                        cut = rng.randrange(len(names) + 1)
                        await here.assign(a=line[:cut], b=line[cut:])
                        failing = failing_before
                    case 4:
                        failing = rng.choice((0.0, 0.05, 0.2))
                    case 5:
                        old = rng.choice(here.daemons[-4:])
                        if not old.task.done():
                            await kill(old)
                            here.scheduler(old.scheduler.settings.shard, f"after-{step}")
                await here.run(rng.choice((0.5, 2.0, 5.0)))
            failing = 0.0
            await here.assign(a=names[:3], b=names[3:])
            for shard in "ab":
                here.scheduler(shard, f"last-{shard}")

            async def all_placed() -> bool:
                return all(one["spec"].get("nodeName") for one in (await here.cluster.pods()).values())

            await here.until(all_placed, 240)
            await here.run(20)
            assert {name: found for name, found in (await here.used()).items() if found} == {
                "a": set(names[:3]), "b": set(names[3:])}  # fmt: skip
            await here.daemons[-1].audit()

    run_virtually(story())


def test_two_shards_that_claim_one_node_at_the_same_moment_do_not_both_have_it() -> None:
    """Both say that they use it before either has looked again."""

    async def story() -> None:
        async with place(Source.NODESHARDS, node("n1", cards=2)) as here:
            await here.assign(a=[], b=[])
            a, b = here.scheduler("a"), here.scheduler("b")
            await here.run(5)
            lists, request = 0, here.cluster.request
            both = asyncio.Event()

            async def slow(verb: str, path: str, **options: Any) -> bytes:
                nonlocal lists
                answer = await request(verb, path, **options)
                if verb == "PATCH" and "/nodeshards/" in path and path.endswith("/status") and not both.is_set():
                    lists += 1
                    if lists >= 2:
                        both.set()
                    await asyncio.wait_for(both.wait(), 60)
                return answer

            # b sees itself as the only one that desires the node, then a does, and both claim.
            here.cluster.request = slow  # type: ignore[method-assign]
            await here.cluster.patch(NODE_SHARDS, "b", {"spec": {"nodesDesired": ["n1"]}})
            await here.clock.sleep(2.5)
            await here.cluster.patch(NODE_SHARDS, "a", {"spec": {"nodesDesired": ["n1"]}})
            await here.cluster.patch(NODE_SHARDS, "b", {"status": {"nodesInUse": []}}, subresource="status")
            await here.run(30)
            await create(here.cluster, pod("p", mib=1000))
            await here.until(lambda: a.bound("p"))
            users = await here.used()
            assert sorted(len(names) for names in users.values()) == [0, 1]
            assert len(a.scheduler.engine.state.shards.ours) + len(b.scheduler.engine.state.shards.ours) == 1

    run_virtually(story())


@pytest.mark.parametrize("source", SOURCES)
def test_a_gang_wider_than_its_shard_goes_where_it_fits_and_where_none_does_it_says_so(source: Source) -> None:
    async def story() -> None:
        async with place(source, *four()) as here:
            await here.assign(a=["n1"], b=["n2", "n3", "n4"])
            a, b = here.scheduler("a"), here.scheduler("b")
            for name in ("g", "h"):
                await create(here.cluster, group(name, minimum=3),
                             *(pod(f"{name}{i}", group=name, cards=1, mib=8000) for i in range(3)))  # fmt: skip
            await here.until(lambda: b.bound(*(f"{name}{i}" for name in "gh" for i in range(3))))
            assert set(await here.nodes_of("g") + await here.nodes_of("h")) <= {"n2", "n3", "n4"}
            await create(here.cluster, group("w", minimum=7), *(pod(f"w{i}", group="w", cards=1, mib=8000) for i in range(7)))
            await here.run(15)
            assert "wider than a shard: when empty there is room in shard a for 2, shard b for 6" in await a.condition("w0")
            assert set(await here.nodes_of("w")) == {""}

    run_virtually(story())


@pytest.mark.parametrize("source", SOURCES)
def test_an_empty_shard_stands_by_until_it_is_given_nodes(source: Source) -> None:
    async def story() -> None:
        async with place(source, *four()) as here:
            await here.assign(a=["n1", "n2", "n3", "n4"], b=[])
            a, b = here.scheduler("a"), here.scheduler("b")
            await create(here.cluster, *(pod(f"p{i}", mib=1000) for i in range(12)))
            await here.until(lambda: a.bound(*(f"p{i}" for i in range(12))))
            assert (await b.page("/readyz"))[0] == 200
            await here.assign(a=["n1", "n2"], b=["n3", "n4"])
            await here.until(lambda: _is(b.scheduler.engine.state.shards.ours == {"n3", "n4"}))
            await create(here.cluster, *(pod(f"q{i}", mib=1000) for i in range(12)))
            await here.until(lambda: a.bound(*(f"q{i}" for i in range(12))))
            assert {"n3", "n4"} & set(await here.nodes_of("q"))
            await a.audit()

    run_virtually(story())


def test_where_the_api_server_knows_no_nodeshards_labels_count() -> None:
    async def story() -> None:
        async with place(Source.LABELS, *four()) as here:
            here.cluster.fault = lambda verb, path: ApiError(404, "NotFound", "no such kind") if "/nodeshards" in path else None
            await here.assign(a=["n1", "n2"], b=["n3", "n4"])
            here.source = Source.AUTO
            one = here.scheduler("a")
            here.source = Source.LABELS
            await here.until(lambda: _is(one.scheduler.engine.state.shards.ours == {"n1", "n2"}))

    run_virtually(story())


@pytest.mark.parametrize(("given", "said"), [
    (["--scheduler-sharding-mode=strict"], "none, hard, soft"),
    (["--scheduler-sharding-mode=hard", "--scheduler-sharding-peers=a,b"], "--scheduler-sharding-name '', is none of them"),
    (["--scheduler-sharding-mode=hard", "--scheduler-sharding-name=c", "--scheduler-sharding-peers=a,b"], "is none of them"),
])  # fmt: skip
def test_flags_that_make_no_sense_are_refused_in_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["scheduler", *given])
    assert stopped.value.code == 2
    text = capsys.readouterr().err
    assert said in text.replace("'none', 'hard', 'soft'", "none, hard, soft")
    assert text.count("\n") <= 2


def test_a_scheduler_without_shards_reads_and_writes_none() -> None:
    async def story() -> None:
        async with place(Source.NODESHARDS, *four()) as here:
            requested: list[str] = []
            here.cluster.fault = lambda verb, path: requested.append(path)  # type: ignore[func-returns-value]
            one = Daemon(here.cluster, here.clock, Settings(leader_elect=True, identity="one"))
            here.daemons.append(one)
            await create(here.cluster, pod("p", mib=1000))
            await one.bind_all("p")
            assert not [path for path in requested if "nodeshards" in path]
            assert one.scheduler.sharding is None

    run_virtually(story())
