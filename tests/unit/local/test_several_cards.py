"""Shares of several cards: which cards, the same of each, and what is said when they do not fit."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pumice.adapters.bookings.book import BookedCard, Booking, living
from pumice.adapters.bookings.processes import start_time
from pumice.adapters.region.reader import V12
from pumice.adapters.region.writer import create_region
from pumice.local.allocator import Allocator, Refused
from pumice.local.request import Request, parse_cards, parse_shares
from pumice.local.start import environment
from pumice.model.errors import BadInput
from pumice.ports.cards import CardFacts

MIB = 1 << 20
CARDS = tuple(
    CardFacts(index, f"GPU-{index}a0a0a0a-0000-4000-8000-000000000000", "Tesla T4", 15360 * MIB, minor=index)
    for index in range(3)
)
UNLIKE = (CARDS[0], replace(CARDS[1], name="Tesla V100-SXM2-16GB", memory=16160 * MIB), CARDS[2])


def booked(request: Request, number: str = "r1", cards: tuple[CardFacts, ...] = CARDS,
           others: tuple[Booking, ...] = ()) -> Booking:  # fmt: skip
    allocator = Allocator(cards, others)
    allocation = allocator.place(request, number)
    allocated = [BookedCard(fact.index, fact.name, fact.memory // MIB) for fact in allocator.facts(allocation)]
    return Booking(id=number, pid=os.getpid(), start=start_time(os.getpid()), user=0, command=["train"], cards=allocated,
                   region="/nowhere/vgpu.cache", annotations=allocator.annotations(allocation, 10**18), created=0.0)  # fmt: skip


@pytest.mark.parametrize(
    ("gpu", "gpus", "visible", "expected"),
    [
        (None, None, None, (("0",), 1)),
        (None, None, "2,1", (("2",), 1)),
        (None, None, "1,-1,0", (("1",), 1)),
        ("auto", None, " 2 , 1", (("2", "1"), 1)),
        ("0,1", None, None, (("0", "1"), 2)),
        ("0,1", None, "", (("0", "1"), 2)),
        ("0", None, "-1", (("0",), 1)),
        ("0,1", None, "2", (("0", "1"), 2)),
        ("auto", None, None, ((), 1)),
        ("auto", "2", None, ((), 2)),
        (None, "2", None, ((), 2)),
        (None, "2", "1,2,0", (("1", "2", "0"), 2)),
        ("all", None, None, ((), 0)),
        (None, "all", None, ((), 0)),
        (None, "all", "1,0", (("1", "0"), 0)),
    ],
)
def test_cards_are_named_or_counted(gpu: str | None, gpus: str | None, visible: str | None, expected: object) -> None:
    assert parse_cards(gpu, gpus, visible)[:2] == expected


@pytest.mark.parametrize("visible", ["", "-1", "-1,0", "NoDevFiles", " "])
@pytest.mark.parametrize(("gpu", "gpus"), [(None, None), ("auto", None), ("all", None), (None, "2"), (None, "all")])
def test_a_variable_that_hides_every_card_leaves_none_to_share(visible: str, gpu: str | None, gpus: str | None) -> None:
    with pytest.raises(BadInput, match=rf"^CUDA_VISIBLE_DEVICES={visible}: CUDA shows a program no card then.*--gpu$"):
        parse_cards(gpu, gpus, visible)


@pytest.mark.parametrize(("visible", "words"), [
    ("5", "this machine has cards 0 to 2"), ("GPU-beef", "this machine has cards 0 to 2"), ("0,0", "names a card twice"),
])  # fmt: skip
def test_a_card_that_is_not_there_is_blamed_on_what_named_it(visible: str, words: str) -> None:
    chosen = parse_cards("auto", None, visible)
    with pytest.raises(BadInput, match=f"^CUDA_VISIBLE_DEVICES={visible}: {words}$"):
        booked(parse_shares(None, "0", chosen.cards, chosen.number, source=chosen.source))
    with pytest.raises(BadInput, match=f"^--gpu {visible.split(',')[0]}"):
        booked(Request(cards=tuple(visible.split(","))))


@pytest.mark.parametrize(("visible", "words"), [
    (None, "--gpus 4: this machine has 3; --gpus all takes every card"),
    ("2,1", "--gpus 4: CUDA_VISIBLE_DEVICES=2,1 leaves 2 in view"),
])  # fmt: skip
def test_more_cards_than_there_are_is_not_answered_with_less_memory(visible: str | None, words: str) -> None:
    chosen = parse_cards(None, "4", visible)
    with pytest.raises(BadInput, match=f"^{words}$"):
        booked(parse_shares("6000", "0", chosen.cards, chosen.number, source=chosen.source))


@pytest.mark.parametrize(
    ("gpu", "gpus", "words"),
    [
        ("0,first", None, "the number of a card such as 0"),
        ("0,,1", None, "the number of a card such as 0"),
        ("1,1", None, "names a card twice"),
        ("0,1", "3", "--gpu 0,1 --gpus 3: the one names the cards and the other counts them"),
        ("1", "1", "--gpu 1 --gpus 1: the one names the cards and the other counts them"),
        ("all", "2", "how many cards or all of them"),
        ("MIG-0a0a0a0a-0000-5000-8000-000000000000", None, "a MIG slice is a share already.*CUDA_VISIBLE_DEVICES=MIG-0a0a0a0a"),
        (None, "0", "1 to 16"),
        (None, "two", "1 to 16"),
        (",".join(map(str, range(17))), None, "may hold 16"),
    ],
)
def test_what_names_no_cards_is_told(gpu: str | None, gpus: str | None, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_cards(gpu, gpus)


def test_each_card_may_have_a_share_of_its_own() -> None:
    wanted = parse_shares("3000,50%", "20,50", ("2", "0"), 2)
    share = booked(wanted)
    assert [(card.index, device.memory, device.cores) for card, device in share.allocated] == [(2, 3000, 20), (0, 7680, 50)]
    assert booked(parse_shares("3000,8000", "40", ("0", "1"), 2)).limits == {0: (3000 * MIB, 40), 1: (8000 * MIB, 40)}
    assert booked(parse_shares(None, "0,30", ("0", "1"), 2)).limits == {0: (15360 * MIB, 0), 1: (15360 * MIB, 30)}
    full = booked(Request(memory=10000, cards=("0",)))
    with pytest.raises(Refused, match=r"^card 0 has no room for 6000 MiB"):
        Allocator(CARDS, [full]).place(parse_shares("3000,6000", "0", ("1", "0"), 2), "r2")


@pytest.mark.parametrize(
    ("memory", "cores", "cards", "count", "words"),
    [
        ("3000,8000", "0", ("0",), 1, "2 values for one card"),
        ("3,000", "0", ("0",), 1, "--memory 3,000: 2 values for one card"),
        ("1,2,3", "0", ("0", "1"), 2, "3 values for 2 cards; give one for all, or one for each"),
        ("100", "20,50", (), 2, "--cores 20,50: one for each card, so name the cards with --gpu"),
        ("3000,", "0", ("0", "1"), 2, "MiB such as 3000"),
        ("3000,4gx", "0", ("0", "1"), 2, "did you mean 4GiB?"),
    ],
)
def test_shares_that_match_no_cards_are_told(memory: str, cores: str, cards: tuple[str, ...], count: int, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_shares(memory, cores, cards, count)


def test_a_card_named_by_number_and_by_uuid_is_named_twice() -> None:
    with pytest.raises(BadInput, match="names a card twice"):
        booked(parse_shares("100,200", "0", ("0", CARDS[0].uuid), 2))


def test_a_slice_in_the_environment_is_not_silently_taken_for_card_0() -> None:
    slices = "MIG-0a0a0a0a-0000-5000-8000-000000000000,MIG-0b"
    with pytest.raises(BadInput, match=r"CUDA_VISIBLE_DEVICES=MIG-0a0a0a0a-.*is a share already.*with --gpu"):
        parse_cards(None, None, slices)
    assert parse_cards("1", None, slices)[:2] == (("1",), 1)


def test_a_program_holds_the_same_of_each_of_its_cards() -> None:
    share = booked(Request(memory=3000, cores=40, cards=("0", "2"), count=2))
    assert [(card.index, device.memory, device.cores) for card, device in share.allocated] == [(0, 3000, 40), (2, 3000, 40)]


def test_a_percentage_is_of_each_card() -> None:
    share = booked(Request(percent=50, cards=("0", "1"), count=2), cards=UNLIKE)
    assert share.limits == {0: (7680 * MIB, 0), 1: (8080 * MIB, 0)}


def test_the_emptiest_cards_are_taken() -> None:
    first = booked(Request(memory=100, cards=("1",)))
    second = booked(Request(memory=100, cards=(), count=2), "r2", others=(first,))
    assert [card.index for card in second.cards] == [0, 2]


@pytest.mark.parametrize("taken", ["0", "1", "2"])
def test_the_cards_stand_in_the_order_in_which_they_were_named_else_in_the_machines(taken: str) -> None:
    """Whichever is fuller: the first one is the program's card 0."""
    first = booked(Request(memory=5000, cores=30, cards=(taken,)))
    for named in (("0", "1"), ("1", "0"), ("2", "0")):
        second = booked(Request(memory=100, cards=named, count=2), "r2", others=(first,))
        assert [str(card.index) for card in second.cards] == list(named)
    anywhere = booked(Request(memory=100, cards=(), count=3), "r2", others=(first,))
    assert [card.index for card in anywhere.cards] == [0, 1, 2]


def test_all_cards_are_as_many_as_there_are() -> None:
    assert len(booked(Request(percent=100, cards=(), count=0)).cards) == 3


def test_of_the_cards_to_choose_from_one_is_enough() -> None:
    whole = booked(Request(percent=100, cards=("1",)))
    assert [card.index for card in booked(Request(memory=1, cards=("1", "2"), count=1), "r2", others=(whole,)).cards] == [2]


def test_a_refusal_tells_of_each_card_and_what_would_fit() -> None:
    first = booked(Request(memory=10000, cores=70, cards=("0",)))
    with pytest.raises(Refused) as reported:
        Allocator(CARDS, [first]).place(Request(memory=6000, cards=("0", "1"), count=2), "r2")
    assert str(reported.value).splitlines() == [
        "not each of the cards 0, 1 has room for 6000 MiB",
        "  card 0 (Tesla T4, 15360 MiB): 5360 MiB and 30 % of the cores are free",
        f"    r1  pid {os.getpid()}  10000 MiB  70 %  train",
        "  card 1 (Tesla T4, 15360 MiB): 15360 MiB and 100 % of the cores are free",
        "  cards 1,2 have room for it: --gpu 1,2, or --gpus 2",
    ]
    with pytest.raises(Refused, match=r"not each of the cards(.|\n)*what would fit on cards 0, 1, 2: --memory 5360$"):
        Allocator(CARDS, [first]).place(Request(memory=6000, cards=(), count=3), "r2")


def test_a_change_holds_on_every_card_and_keeps_what_it_does_not_name() -> None:
    share = booked(Request(percent=50, cores=40, cards=("0", "1"), count=2), cards=UNLIKE)
    allocator = Allocator(UNLIKE, [share])
    assert [(p.memory, p.cores) for p in allocator.resize(Request(cores=60), share).container_devices] == [(7680, 60), (8080, 60)]
    assert [(p.memory, p.cores) for p in allocator.resize(Request(memory=9000, cores=40), share).container_devices] == [
        (9000, 40)
    ] * 2
    with pytest.raises(Refused, match="card 0 has no room for 15361 MiB"):
        allocator.resize(Request(memory=15361, cores=40), share)


def test_each_card_may_be_given_another_limit() -> None:
    share = booked(parse_shares("3000,8000", "20,50", ("0", "1"), 2))
    wanted = Request(each=(Request(memory=4000, cores=20), Request(cores=60)))
    assert [(p.memory, p.cores) for p in Allocator(CARDS, [share]).resize(wanted, share).container_devices] == [
        (4000, 20),
        (8000, 60),
    ]


def test_a_program_finds_its_cards_and_limits_in_its_environment(tmp_path: Path) -> None:
    like = booked(Request(memory=3000, cores=40, cards=("0", "2"), count=2))
    env = environment(like, Path("/x/libvgpu.so"), tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT_7": "1m"})
    assert env["CUDA_VISIBLE_DEVICES"] == f"{CARDS[0].uuid},{CARDS[2].uuid}"
    assert {k: v for k, v in env.items() if "LIMIT" in k} == {"CUDA_DEVICE_MEMORY_LIMIT": "3000m", "CUDA_DEVICE_SM_LIMIT": "40"}
    only = environment(booked(Request(memory=3000, cards=("0",))), Path("/x/libvgpu.so"), tmp_path, {}, only_card=True)
    assert only["CUDA_VISIBLE_DEVICES"] == "0", "who has one card need not know UUIDs"
    unlike = booked(Request(percent=50, cards=("0", "1"), count=2), cards=UNLIKE)
    env = environment(unlike, Path("/x/libvgpu.so"), tmp_path, {})
    assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "7680m"
    assert env["CUDA_DEVICE_MEMORY_LIMIT_1"] == "8080m"


def test_a_region_holds_each_card_to_its_own_limit_and_others_to_the_least(tmp_path: Path) -> None:
    path = tmp_path / "r1" / "vgpu.cache"
    create_region(path, {1: (2000, 0), 2: (1000, 30)})
    raw = path.read_bytes()
    assert struct.unpack_from("<4Q", raw, V12.limits) == (1000, 2000, 1000, 1000)
    assert struct.unpack_from("<4Q", raw, V12.sm_limits) == (30, 100, 30, 30)


def test_the_book_of_an_older_version_is_read(tmp_path: Path) -> None:
    share = booked(Request(memory=3000))
    old = msgspec.to_builtins(share) | {"card": 0, "model": "Tesla T4", "total": 15360}
    del old["cards"]
    (tmp_path / "bookings.json").write_text(json.dumps({"version": 1, "next": 2, "bookings": [old]}))
    assert living(tmp_path) == [share]
