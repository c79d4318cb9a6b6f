"""binpack and spread between nodes and cards, with the guides' own scheduler configuration unchanged."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from kit.device_world import A100, card, limits, pod_of, vgpu_node

from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.wire import names
from pumice.wire.objects import Node

EXAMPLES = Path(__file__).parents[2] / "examples"
GUIDES = sorted(EXAMPLES.glob("*/scheduler-config.yaml"))


def guide_conf(policy: str) -> str:
    """The configuration that the vGPU guide prints, with the policy that it describes."""
    found = yaml.safe_load((EXAMPLES / "vgpu-user-guide" / "scheduler-config.yaml").read_text())
    text: str = found["data"][names.SCHEDULER_CONF_KEY]
    document = yaml.safe_load(text)
    for tier in document["tiers"]:
        for plugin in tier["plugins"]:
            if plugin["name"] == "deviceshare":
                plugin["arguments"]["deviceshare.SchedulePolicy"] = policy
    return yaml.safe_dump(document)


def cluster(policy: str, *nodes: Node) -> Engine:
    engine = engine_of(ClusterSnapshot(scheduler_conf=guide_conf(policy)))
    for node in nodes:
        node.status.allocatable |= {"pods": 110, "cpu": "64", "memory": "256Gi"}
        engine.state.bookings.put_node(node)
    return engine


def arrive(engine: Engine, count: int, memory: int, **notes: str) -> list[str]:
    """Node/card of each pod, one cycle per pod as when they come one after the other."""
    found = []
    for number in range(count):
        pod = pod_of(f"p{number}", limits(1, memory) | {"cpu": "1", "memory": "1Gi"}, annotations=notes)
        pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
        engine.state.pods.put(pod)
        effects = engine.cycle(100.0 + number).effects
        found += [f"{e.node}/{e.annotations[names.VGPU_IDS].split(',')[0]}" for e in effects if isinstance(e, Bind)]
    return found


def two_by_two() -> list[Node]:
    return [vgpu_node(f"n{n}", *(card(f"GPU-{n}{c}") for c in range(2))) for n in range(2)]


def test_binpack_fills_one_node_before_it_opens_the_next() -> None:
    places = arrive(cluster("binpack", *two_by_two()), 8, 8000)
    assert places == ["n0/GPU-00"] * 2 + ["n0/GPU-01"] * 2 + ["n1/GPU-10"] * 2 + ["n1/GPU-11"] * 2


def test_spread_alternates_between_nodes_and_then_between_cards() -> None:
    places = arrive(cluster("spread", *two_by_two()), 4, 4000)
    assert Counter(place.split("/")[0] for place in places[:2]) == {"n0": 1, "n1": 1}
    assert sorted(places) == ["n0/GPU-00", "n0/GPU-01", "n1/GPU-10", "n1/GPU-11"]


def test_a_pod_may_ask_for_another_policy_than_the_cluster() -> None:
    ids = "GPU-00,NVIDIA,1,0:GPU-01,NVIDIA,1,0:"
    busy = pod_of("busy", limits(2, 1), node="n0", annotations={names.VGPU_IDS: ids})
    busy.status.phase = "Running"
    for notes, expected in (({}, "n0/GPU-00"), ({names.NODE_POLICY: "spread"}, "n1/GPU-10")):
        engine = cluster("binpack", *two_by_two())
        engine.state.pods.put(busy)
        assert arrive(engine, 1, 4000, **notes) == [expected]


def test_the_guides_mig_pod_gets_the_5_gb_slice_and_vgpu_pods_go_to_the_other_node() -> None:
    mig = vgpu_node("mig", card("GPU-m", 40960, 10, A100, mode="mig"))
    plain = vgpu_node("plain", card("GPU-p", 16384))
    engine = cluster("binpack", mig, plain)
    assert arrive(engine, 1, 3000, **{names.VGPU_MODE: "mig"}) == ["mig/GPU-m[group1-0]"]
    other = cluster("binpack", mig, plain)
    assert arrive(other, 1, 3000, **{names.VGPU_MODE: "hami-core"}) == ["plain/GPU-p"]
    usage = engine.state.ledger.device_tables["nvidia-vgpu"].nodes["mig"].usages[0]
    assert (usage.memory, usage.group) == (5120, "group1")


@pytest.mark.parametrize("path", GUIDES, ids=[path.parent.name for path in GUIDES])
def test_every_guides_configuration_switches_a_family_on(path: Path) -> None:
    text = yaml.safe_load(path.read_text())["data"][names.SCHEDULER_CONF_KEY]
    assert engine_of(ClusterSnapshot(scheduler_conf=text)).device_types


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
@pytest.mark.parametrize("weight", [None, 0, 10])
def test_a_pod_that_names_no_mode_takes_shares_on_any_node_before_a_slot_on_any_other(policy: str, weight: int | None) -> None:
    mig = vgpu_node("a-mig", card("GPU-m", 40960, 10, A100, mode="mig"))
    plain = vgpu_node("b-plain", card("GPU-p", 6000))
    text = yaml.safe_load(guide_conf(policy))
    (arguments,) = [p["arguments"] for tier in text["tiers"] for p in tier["plugins"] if p["name"] == "deviceshare"]
    arguments.pop("deviceshare.ScheduleWeight", None)
    arguments |= {} if weight is None else {"deviceshare.ScheduleWeight": weight}
    engine = engine_of(ClusterSnapshot(scheduler_conf=yaml.safe_dump(text)))
    for node in (mig, plain):
        node.status.allocatable |= {"pods": 110, "cpu": "64", "memory": "256Gi"}
        engine.state.bookings.put_node(node)
    assert [place.split("/")[0] for place in arrive(engine, 3, 3000)] == ["b-plain", "b-plain", "a-mig"]


@pytest.mark.parametrize("own", ["binpack", "spread"])
def test_a_pods_own_node_policy_counts_where_the_cluster_has_none(own: str) -> None:
    used = {"binpack": 1, "spread": 0}[own]
    busy = pod_of("busy", limits(1, 4000), node=f"n{used}", annotations={names.VGPU_IDS: f"GPU-{used}0,NVIDIA,4000,0:"})
    busy.status.phase = "Running"
    engine = cluster("", *two_by_two())
    engine.state.pods.put(busy)
    assert arrive(engine, 1, 4000, **{names.NODE_POLICY: own, names.CARD_POLICY: own}) == ["n1/GPU-10"]
