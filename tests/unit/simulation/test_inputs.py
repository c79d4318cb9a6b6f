"""Traces, generated pods and changes of a cluster; what cannot be is refused with its place."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

import pytest

from pumice.devices.card_policies import POLICIES
from pumice.model.errors import BadInput
from pumice.simulation import manifests
from pumice.simulation.changes import added, outages, recut, with_policy, without
from pumice.simulation.generate import beside_cards, generate
from pumice.simulation.trace import nodes_of, tasks_of
from pumice.wire import names
from pumice.wire.nvidia_vgpu import parse_register

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,262144,2,P100\n"
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
POD = "p-1,6000,12288,1,460,P100|T4,LS,Running,100,700,130\n"
CONF = "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n  - name: deviceshare\n"


def test_a_trace_has_cards_of_a_thousand_thousandths_and_pods_with_times() -> None:
    (node,) = nodes_of(NODES, "nodes.csv")
    cards = parse_register(node["metadata"]["annotations"][names.NODE_VGPU_REGISTER]).cards
    assert [(card.total, card.type) for card in cards] == [(1000, "NVIDIA-P100")] * 2
    (task,) = tasks_of(HEAD + POD, "pods.csv")
    assert (task.arrives, task.runs, task.thousandths) == (100.0, 570.0, 460)
    assert "P100" in str(task.template["spec"]["affinity"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + POD.replace(",100,", ",-100,"), "pods.csv:2: creation_time -100 is negative"),
        (HEAD + POD.replace(",700,", ",90,"), "pods.csv:2: deletion_time 90 is before its start at 130"),
        (HEAD + POD + "p-2,6000,12", "pods.csv:3: 3 of 11 columns; is the file cut off?"),
        (HEAD + POD + POD, "pods.csv:3: name 'p-1' is there twice"),
        (HEAD + POD.replace("6000", "six"), "pods.csv:2: cpu_milli 'six' is no number"),
        (HEAD + POD.replace(",460,", ",1460,"), "pods.csv:2: gpu_milli 1460: of one card at most 1000"),
        (HEAD, "pods.csv: it has a header and no rows; is the file cut off?"),
        ("", "pods.csv:1: no column name"),
        ("name,cpu\n", "pods.csv:1: no column cpu_milli"),
    ],
)
def test_a_bad_trace_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        tasks_of(text, "pods.csv")
    assert str(refused.value).startswith(said)


def test_generated_pods_are_those_of_the_seed() -> None:
    flow = "pods=400,shape=mixed,arrival=poisson:2/s,duration=lognormal:10m:1.5,queue=q"
    found = generate("--generate", flow, Random(1), [])
    assert found == generate("--generate", flow, Random(1), [])
    assert found != generate("--generate", flow, Random(2), [])
    assert 150 < found[-1].at < 250
    assert 400 < sorted(one.runs for one in found)[200] < 900
    assert {one.templates[0]["metadata"]["annotations"][names.QUEUE_NAME] for one in found} == {"q"}
    gangs = generate("--generate", "pods=8,gang=4,shape=whole,arrival=even:1/m,duration=fixed:1h", Random(1), [])
    assert [(one.at, len(one.templates), one.gang, one.runs) for one in gangs] == [(0, 4, 4, 3600.0), (60.0, 4, 4, 3600.0)]
    tasks = tasks_of(HEAD + POD, "pods.csv")
    (drawn,) = generate("--generate", "pods=1,shape=trace,duration=trace", Random(1), tasks)
    assert drawn.runs == 570.0


def test_generated_pods_ask_for_no_more_than_their_cards_part_of_the_roomiest_node() -> None:
    nodes = [{"status": {"allocatable": {"cpu": "8", "memory": "64Gi", names.VGPU_CORES: "800"}}},
             {"status": {"allocatable": {"cpu": "8", "memory": "32Gi", names.VGPU_CORES: "200"}}},
             {"status": {"allocatable": {"cpu": "64", "memory": "1Ti"}}}]  # fmt: skip
    flow = "pods=200,shape=mixed"
    found = [one.templates[0]["spec"]["containers"][0]["resources"] for one in generate("--generate", flow, Random(1), [])]
    cut = [one.templates[0]["spec"]["containers"][0]["resources"]
           for one in generate("--generate", flow, Random(1), [], beside=beside_cards(nodes))]  # fmt: skip
    asked = {str(one["limits"].get(names.VGPU_NUMBER, 0)): (one["requests"]["cpu"], one["requests"]["memory"]) for one in cut
             if one["limits"].get(names.VGPU_MEMORY_PERCENTAGE, "100") == "100"}  # fmt: skip
    assert (asked["0"], asked["1"], asked["8"]) == (("8", "16Gi"), ("4000m", "16384Mi"), ("32000m", "131072Mi"))
    assert [one["limits"].get(names.VGPU_NUMBER) for one in cut] == [one["limits"].get(names.VGPU_NUMBER) for one in found]
    assert beside_cards([]) == (inf, inf)


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        ("pod=1", "gang, patience; did you mean 'pods'?"),
        ("shape=mixed", "write pods="),
        ("pods=-1", "pods is a whole number from 1"),
        ("pods=1,shape=mixt", "no shape 'mixt' among shares, whole, mixed, trace; did you mean 'mixed'?"),
        ("pods=1,shape=trace", "shape=trace draws from a list of pods"),
        ("pods=1,arrival=poison:1/s", "not 'poison:1/s'; did you mean 'poisson'?"),
        ("pods=1,arrival=poisson:0/s", "'0/s' is no rate"),
        ("pods=1,arrival=poisson:nan/s", "'nan/s' is no rate"),
        ("pods=1,arrival=even:-2/s", "'-2/s' is no rate"),
        ("pods=1,duration=lognormal:10m", "not 'lognormal:10m'"),
        ("pods=1,duration=lognormal:10m:x", "sigma is a number"),
        ("pods=1,duration=fixed:-3s", "'-3s' is no duration"),
        ("pods=1,duration=trace", "duration=trace needs shape=trace"),
        ("pods=5,gang=2", "no whole number of gangs"),
    ],
)
def test_a_flow_that_cannot_be_is_refused(flow: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        generate("--generate", flow, Random(1), [])
    assert said in str(refused.value)


def cluster() -> dict[str, list[dict[str, Any]]]:
    node = manifests.node("n1", cpu="64", memory="256Gi", model="NVIDIA-A100-SXM4-80GB", cards=2, mib=81920)
    pod = manifests.pod({names.VGPU_NUMBER: "1"}, queue="q1")
    pod["metadata"] |= {"name": "a", "namespace": "default", "uid": "a"}
    pod["metadata"]["annotations"] |= {names.VGPU_IDS: "GPU-n1-0,NVIDIA,81920,0:"}
    pod["spec"]["nodeName"] = "n1"
    return {"nodes": [node], "pods": [pod]}


def cards_of(node: dict[str, Any]) -> list[Any]:
    return list(parse_register(node["metadata"]["annotations"][names.NODE_VGPU_REGISTER]).cards)


def test_more_nodes_are_like_those_of_the_cluster_or_of_a_product() -> None:
    like = added(cluster(), "nodes=2,model=a100")[0]["nodes"]
    assert [node["metadata"]["name"] for node in like] == ["n1", "added-1", "added-2"]
    assert len({card.uuid for node in like for card in cards_of(node)}) == 6
    (_, bought) = added(cluster(), "nodes=1,model=H100-NVL,cards=4,cpu=96")[0]["nodes"]
    assert len(cards_of(bought)) == 4
    assert "H100" in cards_of(bought)[0].type
    assert added({}, "nodes=1")[0]["nodes"][0]["metadata"]["annotations"] == {}


def test_a_model_is_meant_by_whole_words_and_what_else_is_called_so_is_said() -> None:
    bought, note = added(cluster(), "nodes=1,model=h100")
    assert "H100" in cards_of(bought["nodes"][1])[0].type
    assert note == "--add nodes=1,model=h100: cards H100-PCIE-80GB; H100-SXM5-80GB, H100-NVL are called so, too"
    assert added(cluster(), "nodes=1,model=H200")[1] == "", "H200 is the name of one, though H200-NVL has that word, too"
    for part in ("A10", "H10", "L40", "100"):
        with pytest.raises(BadInput, match=f"no model '{part}'"):
            added(cluster(), f"nodes=1,model={part}")


def test_another_cut_gives_a_node_its_slots_and_its_pods_wait() -> None:
    found, device_config = recut(cluster(), "", "n1=all-1g")
    assert {(card.mode.value, card.shares) for card in cards_of(found["nodes"][0])} == {("mig", 7)}
    assert "1g.10gb" in device_config
    (pod,) = found["pods"]
    assert "nodeName" not in pod["spec"]
    assert names.VGPU_IDS not in pod["metadata"]["annotations"]
    back, _ = recut(found, device_config, "n1=all-disabled")
    assert {card.mode.value for card in cards_of(back["nodes"][0])} == {"hami-core"}


def test_what_is_gone_takes_its_pods_along() -> None:
    assert without(cluster(), "queue=q1") == ({**cluster(), "pods": [], "podGroups": [], "queues": []}, "q1")
    left = without(cluster(), "node=n1")[0]
    assert not left["nodes"]
    assert "nodeName" not in left["pods"][0]["spec"]  # it waits for another node
    assert without(cluster(), "namespace=default")[0]["pods"] == []


def test_nodes_fail_at_a_time_or_now_and_then() -> None:
    (one,) = outages(cluster(), "node=n1,at=1h,for=10m", 1e9, Random(1))
    assert (one.node, one.at, one.seconds) == ("n1", 3600.0, 600.0)
    many = outages(cluster(), "every=10h,for=1h", 1000 * 3600.0, Random(1))
    assert 60 < len(many) < 130


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: added(cluster(), "nodes=2,model=A100-SMX4-80GB"), "did you mean 'A100-SXM4-80GB'?"),
        (lambda: added(cluster(), "nodes=0"), "nodes is a whole number"),
        (lambda: added(cluster(), "nodes=1,nodes=2"), "nodes is there twice"),
        (lambda: added(cluster(), "nodes=1,model=H100,cards=1001"), "cards is a whole number from 1 to 1,000"),
        (lambda: generate("--generate", "pods=3,patience=0s", Random(1), []), "patience is not above 0"),
        (lambda: generate("--generate", "pods=3,queue=<b>", Random(1), []), "queue: '<b>' is no name of an object"),
        (lambda: outages(cluster(), "node=n1,for=0s", 1.0, Random(1)), "for is not above 0"),
        (lambda: outages(cluster(), "every=1ns,for=1ns", 9.0, Random(1)), "more than 1,000,000 failures"),
        (lambda: outages(cluster(), "every=1h,for=1h", 0.0, Random(1)), "no time passes in which a node could fail"),
        (lambda: nodes_of(NODES.replace("P100", "P1;0:0"), "n.csv"), "n.csv:2: model 'P1;0:0'"),
        (lambda: nodes_of(NODES.replace(",2,", ",2000,"), "n.csv"), "n.csv:2: gpu 2000 is above 1,000"),
        (lambda: added(cluster(), "nodes=1,cpu=-4"), "cpu: it is not above 0"),
        (lambda: added(cluster(), "node=1"), "memory, shares; did you mean 'nodes'?"),
        (lambda: recut(cluster(), "", "n2=all-1g"), "no node 'n2'"),
        (lambda: recut(cluster(), "", "n1=all-9g"), "has no cut 'all-9g'"),
        (lambda: without(cluster(), "queue=q2"), "no queue 'q2'"),
        (lambda: without(cluster(), "pod=a"), "no key 'pod'"),
        (lambda: outages(cluster(), "node=n1,every=1h", 1.0, Random(1)), "write node=NAME"),
        (lambda: outages(cluster(), "node=n9,at=1h", 1.0, Random(1)), "no node 'n9'"),
        (lambda: with_policy(CONF, "binpak"), "; did you mean 'binpack'?"),
        (lambda: with_policy("actions: allocate\n", "binpack"), "has no plugin deviceshare"),
    ],
)
def test_a_change_that_cannot_be_is_refused(change: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        change()
    assert said in str(refused.value)


def test_every_policy_of_the_table_can_be_played() -> None:
    for policy in POLICIES:
        assert policy in with_policy(CONF, policy)
