"""What is counted as stranded, against the definition told one node, one shape and one card at a time; and what the engine makes
of it: a node's score is the same whether it is looked at alone or with all others, at once or again."""

from __future__ import annotations

from math import floor
from random import Random

import numpy as np
import pytest
from kit.engine_world import DEVICES_ONLY, World
from kit.objects import node, pod

from pumice.devices.card_policies import POLICIES, Stranding
from pumice.devices.fragmentation import (
    CardPart,
    FreeNodes,
    Shape,
    Shapes,
    of_cards,
    steps,
    stranded,
    tightest,
    with_share,
)
from pumice.devices.nvidia_vgpu.device_request import UNSET
from pumice.scheduler.framework import Framework
from pumice.scheduler.placing.placer import Placer
from pumice.scheduler.plugins.registry import make
from pumice.scheduler.state import seen_shapes
from pumice.wire.scheduler_conf import parse_scheduler_conf

TOTAL = 1000
FGD, AHEAD = Stranding(), Stranding(ahead=0.5, whole=0.1)


def any_nodes(rng: Random, count: int, cards: int = 4) -> FreeNodes:
    total = np.array([[TOTAL if rng.random() < 0.9 else 0 for _ in range(count)] for _ in range(cards)], float)
    alone = np.array([[rng.random() < 0.4 for _ in range(count)] for _ in range(cards)])
    free = np.where(alone, total, [[rng.randrange(0, TOTAL, 50) for _ in range(count)] for _ in range(cards)])
    cores = np.where(alone, 100, [[rng.randrange(0, 101, 10) for _ in range(count)] for _ in range(cards)]).astype(float)
    slots = np.where(alone, 4, [[rng.randint(0, 3) for _ in range(count)] for _ in range(cards)]).astype(float)
    room = np.array([[rng.choice((0, 1000, 4000, 16000, 64000)) for _ in range(count)] for _ in range(2)], float)
    return FreeNodes(room[0], room[1], total, np.minimum(free, total), cores, slots, alone)


def any_part(rng: Random) -> CardPart:
    percent = rng.choice((UNSET, UNSET, 50, 100))
    memory = 0 if percent != UNSET else rng.randrange(50, 1050, 50)
    return CardPart(rng.choice((1, 1, 1, 2, 4)), memory, percent, rng.choice((0, 0, 30, 100)))


def any_shapes(rng: Random, count: int) -> Shapes:
    return Shapes([
        (Shape("vgpu", any_part(rng), rng.choice((0, 500, 2000, 8000)), rng.choice((0, 1000, 4000))), rng.uniform(0.1, 5))
        for _ in range(count)
    ])  # fmt: skip


def by_definition(nodes: FreeNodes, at: int, shapes: Shapes, allowed: list[bool], how: Stranding) -> float:
    cards = [card for card in range(len(nodes.total)) if nodes.total[card, at]]

    def worth(card: int, free: float, cores: float) -> float:
        return float(min(free / nodes.total[card, at], cores / 100))

    def copies(card: int, part: CardPart) -> int:
        free, cores, slots = nodes.free[card, at], nodes.cores[card, at], nodes.slots[card, at]
        need = floor(nodes.total[card, at] * part.percent / 100) if part.percent <= 100 else part.memory
        found = min(free // need, slots, cores // part.cores if part.cores else (slots if cores > 0 else 0))
        if part.cores == 100 and not nodes.alone[card, at]:
            return 0
        return int(min(found, 1) if part.count > 1 else found)

    left = sum(worth(card, nodes.free[card, at], nodes.cores[card, at]) for card in cards)
    whole = sum(bool(nodes.alone[card, at]) for card in cards)
    mean = 0.0
    for shape, weight, may in zip(shapes.shapes, shapes.weight, allowed, strict=True):
        part = shape.part
        of_card = {card: copies(card, part) for card in cards}
        taking = [card for card in cards if of_card[card]]
        hosts = may and nodes.cpu[at] >= shape.cpu and nodes.memory[at] >= shape.memory and len(taking) >= part.count
        now = sum(worth(card, nodes.free[card, at], nodes.cores[card, at]) for card in taking) if hosts else 0.0
        ahead = 0.0
        if may and sum(of_card.values()):
            for card in taking:
                need = floor(nodes.total[card, at] * part.percent / 100) if part.percent <= 100 else part.memory
                free, cores, many = nodes.free[card, at], nodes.cores[card, at], of_card[card]
                ahead += worth(card, free, cores) - worth(card, free - many * need, cores - many * part.cores)
            if part.count > 1:
                ahead *= len(taking) // part.count * part.count / len(taking)
            pods = sum(of_card.values()) / part.count
            room = [
                have / requested
                for have, requested in ((nodes.cpu[at], shape.cpu), (nodes.memory[at], shape.memory))
                if requested
            ]
            ahead *= min(1.0, *(one / pods for one in room)) if room else 1.0
        mean += weight * (now + how.ahead * ahead)
    return (1 + how.ahead) * left - how.whole * whole**2 / max(1, len(cards)) - mean


@pytest.mark.parametrize("how", [FGD, AHEAD])
def test_arrays_count_what_the_definition_counts(how: Stranding) -> None:
    for seed in range(60):
        rng = Random(seed)
        nodes, shapes = any_nodes(rng, 12), any_shapes(rng, rng.randint(0, 9))
        allowed = np.array([[rng.random() < 0.8 for _ in shapes.shapes] for _ in range(len(nodes))], bool).reshape(12, -1)
        found = stranded(nodes, shapes, allowed, how)
        wanted = [by_definition(nodes, at, shapes, allowed[at].tolist(), how) for at in range(len(nodes))]
        assert found == pytest.approx(wanted, abs=1e-6)


def test_a_node_counts_the_same_alone_and_among_hundreds() -> None:
    rng = Random(7)
    nodes, shapes = any_nodes(rng, 300), any_shapes(rng, 20)
    allowed = np.ones((300, 20), bool)
    found = stranded(nodes, shapes, allowed, AHEAD)
    for at in range(0, 300, 7):
        alone = stranded(nodes[np.array([at])], shapes, allowed[:1], AHEAD)
        assert steps(alone - found[at : at + 1]) == 0
        assert alone == pytest.approx(found[at : at + 1], abs=1e-12)


def test_nothing_is_stranded_that_every_shape_can_use_and_everything_that_none_can() -> None:
    rng = Random(3)
    nodes = any_nodes(rng, 50)
    left = stranded(nodes, Shapes(()), np.ones((50, 0), bool), FGD)
    tiny = Shapes([(Shape("vgpu", CardPart(1, 1, UNSET, 0), 0, 0), 1.0)])
    huge = Shapes([(Shape("vgpu", CardPart(1, TOTAL + 1, UNSET, 0), 0, 0), 1.0)])
    one = np.ones((50, 1), bool)
    assert stranded(nodes, huge, one, FGD) == pytest.approx(left)
    usable = nodes.total.astype(bool) & (nodes.slots > 0)
    of_cards = np.minimum(nodes.free / TOTAL, nodes.cores / 100) * usable
    assert stranded(nodes, tiny, one, FGD) == pytest.approx(left - of_cards.sum(axis=0))


def test_more_room_strands_no_more_for_who_could_not_be_there() -> None:
    """By cpu alone: what is free of cards stays what it is."""
    for seed in range(30):
        rng = Random(seed)
        nodes, shapes = any_nodes(rng, 20), any_shapes(rng, 6)
        roomier = FreeNodes(nodes.cpu + 1000, nodes.memory + 1000, nodes.total, nodes.free, nodes.cores, nodes.slots, nodes.alone)
        allowed = np.ones((20, 6), bool)
        assert (stranded(roomier, shapes, allowed, AHEAD) <= stranded(nodes, shapes, allowed, AHEAD) + 1e-9).all()


def test_a_pod_takes_the_tightest_of_the_cards_with_room_and_no_more_than_there_is() -> None:
    for seed in range(60):
        rng = Random(seed)
        nodes, part = any_nodes(rng, 20), any_part(rng)
        shapes = Shapes([(Shape("vgpu", part, 0, 0), 1.0)])
        for at in range(len(nodes)):
            columns = (nodes.total, nodes.free, nodes.cores, nodes.slots, nodes.alone)
            cards = [tuple(int(column[card, at]) for column in columns) for card in range(4)]
            cards = [(*card[:4], bool(card[4])) for card in cards if card[0]]
            fit = [
                bool(of_cards(*(np.array([each], float) for each in card[:4]), np.array([card[4]]), shapes)[0, 1, 0])
                for card in cards
            ]
            after = [with_share(card, part) for card in cards]  # type: ignore[arg-type]
            assert [found is not None for found in after] == fit
            left = [min(card[1] / card[0], card[2] / 100) for card in cards]
            places = tightest([each if may else None for each, may in zip(left, fit, strict=True)], part.count)
            assert (places is None) == (sum(fit) < part.count)
            for place in places or ():
                found = after[place]
                assert found is not None
                assert min(found) >= 0
                assert found[3] == cards[place][3] - 1
            taken = sorted(left[place] for place in places or ())
            fitting = sorted(each for each, may in zip(left, fit, strict=True) if may)
            assert taken == fitting[: len(taken)]


@pytest.mark.parametrize("policy", [name for name, one in POLICIES.items() if one.stranding is not None])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_remembered_of_nodes_is_what_a_fresh_look_finds(
    policy: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods come and go, nodes come, change their labels and go: after every step all scores that are kept are those that a
    scheduler finds which looks for the first time, and the cards that were counted are those that are taken."""
    monkeypatch.setattr(seen_shapes, "ENOUGH", 5)
    rng = Random(seed)
    world = World(DEVICES_ONLY % policy)
    for number in range(6):
        world.add(node(f"n{number}", cards=rng.choice((0, 1, 2, 4)), mib=8000, cpu="8", labels={"pool": rng.choice("ab")}))
    kinds = [
        {"mib": 3000, "cpu": "1"}, {"cards": 2, "mib": 8000, "cpu": "2"}, {"mib": 1000, "cores": 30}, {"cpu": "3"},
        {"mib": 4000, "cpu": "500m", "nodeSelector": {"pool": "a"}}, {"cards": 1},
    ]  # fmt: skip
    for number in range(60):
        deed = rng.random()
        if deed < 0.6:
            world.add(pod(f"p{number}", **rng.choice(kinds)))
        elif deed < 0.85 and world.pods:
            world.delete_pod(rng.choice(sorted(world.pods)).rpartition("/")[2])
        else:
            name = f"n{rng.randrange(8)}"
            known = world.nodes.get(name)
            cards = 2 if known is None else int(known["status"]["allocatable"].get("volcano.sh/vgpu-number", 0)) // 10
            world.add(node(name, cards=cards, mib=8000, cpu="8", labels={"pool": rng.choice("ab")}))
        world.settle()
        state, placer = world.engine.state, world.engine.placer
        fresh = Placer(state, Framework(parse_scheduler_conf(DEVICES_ONLY % policy), make))
        for cls in {task.cls for task in state.tasks.values()}:
            kept = placer._kept.current(cls.base).masked[: len(state.ledger.table.live)]
            assert kept.tolist() == fresh.evaluation.scores(cls.base, None).tolist()
    assert bool(world.engine.state.classes.seen.fits) == (policy == "fitted")
