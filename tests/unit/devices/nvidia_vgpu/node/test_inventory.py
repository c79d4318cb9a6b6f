"""A node's annotations about its cards (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/config, HAMi
volcano-vgpu-device-plugin pkg/plugin/vgpu/plugin.go, HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/register.go, HAMi
volcano-vgpu-device-plugin pkg/plugin/vgpu)."""

from dataclasses import replace
from fractions import Fraction

import pytest
from kit.node_objects import CARDS, A, B, card

from pumice.adapters.kubelet.endpoint import device_list
from pumice.devices.nvidia_vgpu.node.allocator import (
    Advertisement,
    Handshake,
    advertisement,
    register_annotation,
    topology_annotation,
)
from pumice.devices.nvidia_vgpu.node.inventory import capacity, core_list, memory_list, share, share_list
from pumice.devices.nvidia_vgpu.node.sharing import Flags, Sharing, effective, needed_factor
from pumice.effects.vocabulary import PatchNode, PatchStatus
from pumice.node.device_list import MESSAGE_LIMIT, Unit, worst_size
from pumice.ports.cards import CardFacts
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.node_config import parse_node_config
from pumice.wire.nvidia_vgpu import CardPlace, parse_register, parse_topology
from pumice.wire.objects import Node, convert

PLAIN = Sharing()
AMPERE = "NVIDIA A100-SXM4-40GB"


def ampere(index: int, uuid: str) -> CardFacts:
    return card(index, uuid, name=AMPERE, mib=40960, mig=True)


def record(uuid: str, memory: int = 32768, health: str = "true", mode: str = "hami-core") -> str:
    return f"{uuid},10,{memory},NVIDIA-Tesla V100-SXM2-32GB,{health},{mode}:"


@pytest.mark.parametrize(
    ("sharing", "unhealthy", "expected"),
    [
        (PLAIN, (), record(A) + record(B)),
        (replace(PLAIN, factor=10), (), record(A, 3276) + record(B, 3276)),
        (replace(PLAIN, memory_scaling=Fraction("1.8")), (), record(A, 58982) + record(B, 58982)),
        (replace(PLAIN, mode="mig"), (), record(A, health="false", mode="mig") + record(B, health="false", mode="mig")),
        (replace(PLAIN, without_indices=frozenset({1})), (), record(A)),
        (replace(PLAIN, without_uuids=frozenset({A})), (), record(B)),
        (PLAIN, {B: "Xid 79"}, record(A) + record(B, health="false")),
        (replace(PLAIN, without_indices=frozenset({0, 1})), (), ""),
    ],
)
def test_the_register_annotation_says_what_is_shared(sharing, unhealthy, expected):
    assert register_annotation(share(CARDS, sharing, dict.fromkeys(unhealthy, "ill"))) == expected


def test_a_mig_card_announces_places_where_the_device_configmap_asks_for_it():
    cards = (ampere(0, A), card(1, B))
    assert "places" not in register_annotation(share(cards, PLAIN))
    register = register_annotation(share(cards, effective(NvidiaConfig(mig_placements=True))))
    assert register.startswith(f"{A},10,40960,NVIDIA-{AMPERE},true,mig,places:")
    assert [c.places for c in parse_register(register).cards] == [True, False]


def test_records_follow_the_minor_number_and_an_unknown_one_sorts_first():
    cards = share((card(0, A, minor=1), card(1, B, minor=0), card(2, "GPU-c", minor=-1)), PLAIN)
    assert [c.uuid for c in parse_register(register_annotation(cards)).cards] == ["GPU-c", B, A]


def test_a_product_name_cannot_break_the_record():
    cards = share((card(0, A, name="Odd, name: x"),), PLAIN)
    (read,) = parse_register(register_annotation(cards)).cards
    assert read.type == "NVIDIA-Odd  name  x"


def test_a_card_with_mig_switched_on_says_mig_whatever_the_node_wants():
    cards = share((card(0, A, mig=True), card(1, B)), PLAIN)
    assert [c.mode for c in cards] == ["mig", "hami-core"]


def test_a_card_in_mig_mode_is_offered_with_its_own_memory_whatever_the_scaling():
    (shared,) = share((ampere(0, A),), replace(PLAIN, memory_scaling=Fraction("1.8"), mode="mig"))
    assert (shared.mode, shared.memory, shared.healthy) == ("mig", 40960, True)


IMPOSSIBLE = parse_device_config("""
nvidia:
  knownMigGeometries:
  - models: [A100-SXM4-40GB]
    allowedGeometries:
    - {group: g, geometries: [{name: 7g.40gb, memory: 40960, count: 2}]}
""").nvidia


@pytest.mark.parametrize(
    ("facts", "sharing", "why"),
    [
        (card(0, A, mig=True), PLAIN, "no MIG geometry is known for NVIDIA-Tesla V100-SXM2-32GB"),
        (card(0, A, name=AMPERE, mib=40960), replace(PLAIN, mode="mig"), "the card's MIG mode is off"),
        (card(0, A, name=AMPERE, mib=40960, mig=True), effective(IMPOSSIBLE), "groups that the hardware cannot be cut into"),
    ],
)
def test_a_card_that_cannot_be_cut_is_not_offered(facts, sharing, why):
    cards = share((facts, ampere(1, B)), sharing)
    assert (cards[0].healthy, why in cards[0].closed) == (False, True)


def test_what_is_not_offered_keeps_its_devices():
    cards = share((card(0, A, mig=True), card(1, B)), PLAIN)
    assert {unit.id.rpartition("-")[0]: unit.healthy for unit in share_list(cards)} == {A: False, B: True}
    assert capacity(cards, PLAIN)[PLAIN.memory] == 32768


def test_device_ids_count_shares_units_and_percents():
    cards = share(CARDS, PLAIN)
    assert [u.id for u in share_list(cards)] == [f"{uuid}-{i}" for uuid in (A, B) for i in range(10)]
    assert len(memory_list(cards)) == 65536
    assert memory_list(cards)[-1].id == f"{B}-memory-32767"
    assert (core_list(cards)[0].id, len(core_list(cards))) == (f"{A}-core-0", 200)


def test_the_size_of_a_list_is_computed_to_the_byte():
    units = [Unit(u.id, False) for u in memory_list(share(CARDS[:1], PLAIN))]
    assert worst_size(units) == len(device_list([(u.id, u.healthy, u.numa) for u in units])) == 2217114
    assert worst_size(memory_list(share(CARDS, PLAIN))) == 4434228 > MESSAGE_LIMIT
    assert needed_factor(65536, 1) == 2


def test_only_healthy_cards_are_promised_in_the_status():
    assert capacity(share(CARDS, PLAIN), PLAIN) == {names.VGPU_MEMORY: 65536, names.VGPU_CORES: 200}
    assert capacity(share(CARDS, PLAIN, {A: "ill"}), PLAIN) == {names.VGPU_MEMORY: 32768, names.VGPU_CORES: 100}


def test_percentages_are_offered_where_somebody_wants_them_in_a_number_that_stands_in_nobodys_way():
    """No kubelet knows the resource, and Volcano from 1.13 on holds it against the node (HAMi volcano-vgpu-device-plugin
    pkg/plugin/vgpu/plugin.go)."""

    def kept(sharing: Sharing, **more: bool) -> dict[str, int]:
        return dict(advertisement(share(CARDS, sharing), sharing, node(), in_status=False, **more).resources)

    assert kept(PLAIN, percentage=True) == {names.VGPU_MEMORY_PERCENTAGE: 2000}
    assert kept(PLAIN) == {}
    assert kept(replace(PLAIN, config=NvidiaConfig(resource_memory_percentage_name="")), percentage=True) == {}


def test_keys_without_effect_are_named():
    document = parse_node_config('{"nodeconfig":[{"name":"n","migstrategy":"mixed"}]}')
    assert "migstrategy" in " ".join(document.warnings)


def test_node_entries_win_over_flags_and_flags_over_the_config_map():
    config = NvidiaConfig(device_split_count=4, gpu_memory_factor=2, device_core_scaling=1.5)
    document = parse_node_config(
        '{"nodeconfig":[{"name":"n1","devicesplitcount":7,"devicememoryscaling":1.8,"operatingmode":"mig",'
        '"filterdevices":{"uuid":["GPU-x"],"index":[3]}},{"name":"n2","devicesplitcount":9}]}'
    )
    n1 = effective(config, document.of("n1"), Flags(split=5, factor=10))
    assert (n1.split, n1.factor, n1.mode, n1.memory_scaling) == (7, 10, "mig", Fraction(9, 5))
    assert n1.leaves_out(3, "GPU-y")
    assert n1.leaves_out(0, "GPU-x")
    n3 = effective(config, document.of("n3"), Flags(split=5))
    assert (n3.split, n3.factor, n3.cores_per_card) == (5, 2, 150)


@pytest.mark.parametrize(
    ("entry", "warning"),
    [
        ('{"name":"n","devicesplitcount":-1}', "line 1: nodeconfig.0.devicesplitcount must be a number above 0"),
        ('{"name":"n","split":3}', "line 1: nodeconfig.0.split: unknown key"),
        ('{"devicesplitcount":3}', "line 1: nodeconfig.0: an entry needs a name"),
        ('{"name":"n","filterdevices":3}', "line 1: nodeconfig.0.filterdevices must hold the lists"),
    ],
)
def test_strange_node_entries_are_named_and_left_out(entry, warning):
    assert parse_node_config(f'{{"nodeconfig":[{entry}]}}').warnings[0].startswith(warning)


def node(annotations=None, capacity=None, allocatable=None) -> Node:
    status = {"capacity": capacity or {}, "allocatable": allocatable or capacity or {}}
    return convert(Node, {"metadata": {"name": "n", "annotations": annotations or {}}, "status": status})


def test_nothing_is_written_that_already_stands():
    wanted = Advertisement({names.NODE_VGPU_REGISTER: "x:"}, {names.VGPU_MEMORY: 60000})
    assert wanted.missing(node({names.NODE_VGPU_REGISTER: "x:"}, {names.VGPU_MEMORY: "60k"})) == []


def test_a_kubelet_that_zeroed_the_status_gets_it_written_again():
    wanted = Advertisement({names.NODE_VGPU_REGISTER: "x:"}, {names.VGPU_MEMORY: 60000})
    effects = wanted.missing(node({}, {names.VGPU_MEMORY: "60k"}, {names.VGPU_MEMORY: "0"}))
    assert effects == [PatchNode({names.NODE_VGPU_REGISTER: "x:"}), PatchStatus({names.VGPU_MEMORY: "60000"})]


def test_what_the_legacy_plugin_left_is_taken_away_once_it_is_gone():
    wanted = Advertisement({names.NODE_VGPU_REGISTER: "x:"}, {})
    notes = {names.NODE_VGPU_REGISTER: "x:", names.NODE_GPU_UNHEALTHY_IDS: "1"}
    assert wanted.missing(node(notes, {names.GPU_NUMBER: "2", names.GPU_MEMORY: "22356"})) == [], "it is alive"
    assert wanted.missing(node(notes, {names.GPU_NUMBER: "2", names.GPU_MEMORY: "0"})) == [
        PatchNode({names.NODE_GPU_UNHEALTHY_IDS: None}),
        PatchStatus({names.GPU_NUMBER: None}),
    ]


def test_the_place_of_the_cards_is_told_when_it_is_known():
    assert topology_annotation(share(CARDS, PLAIN)) == ""
    cards = share((card(0, A, numa=0, links=((B, 2),)), card(1, B, numa=1, links=((A, 2),))), PLAIN)
    assert parse_topology(topology_annotation(cards)) == (CardPlace(A, 0, ((B, 2),)), CardPlace(B, 1, ((A, 2),)))


def test_handshake_answers_as_old_schedulers_need_it():
    key, stamp = names.NODE_VGPU_HANDSHAKE, "2026-08-20T10:00:00Z"
    reported = PatchNode({key: f"Reported {stamp}"})
    shake = Handshake()
    assert shake.answer("Reported x", 0, stamp) is None
    assert shake.answer("Requesting_2026.08.20 10:00:05", 10, stamp) is None
    assert shake.answer("Requesting_2026.08.20 10:00:05", 29.9, stamp) is None
    assert shake.answer("Requesting_2026.08.20 10:00:05", 30, stamp) == reported
    assert shake.answer("Deleted_2026.08.20 10:01:10", 31, stamp) == reported
    assert Handshake().answer(None, 0, stamp) == reported
    assert Handshake().answer("Requesting_x", 0, stamp) == reported, "at process start at once"
    assert Handshake("never").answer(None, 0, stamp) is None
    always = Handshake("always")
    assert [always.answer("Reported x", t, stamp) is not None for t in (0, 10, 29, 30, 59, 60)] == [
        True, False, False, True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("numa", [-1, 0, 1, 127, 128, 20000])
def test_the_size_of_a_list_is_exact_with_numa_nodes_too(numa):
    units = [Unit(f"{A}-{i}", False, numa) for i in range(3)]
    assert worst_size(units) == len(device_list([(u.id, u.healthy, u.numa) for u in units]))
