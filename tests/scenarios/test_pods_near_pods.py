"""Where pods may go because of other pods, above all of those that are going: affinity, spread and ports."""

from __future__ import annotations

from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import group, node, pod
from kit.scheduler_confs import conf
from kit.storage_objects import claim, storage_class, store, using, volume

Json = dict[str, Any]
ZONE, HOST = "zone", "kubernetes.io/hostname"
PLAIN = conf("gang", "predicates")


def term(key: str, **labels: str) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def near(*terms: Json) -> Json:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def far(*terms: Json) -> Json:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(key: str, **labels: str) -> list[Json]:
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}]


def there(name: str, where: str, **shape: Any) -> Json:
    return pod(name, cpu="1", nodeName=where, scheduler="default-scheduler", **shape)


def test_two_affinity_terms_are_met_by_one_pod_that_meets_both() -> None:
    """n1 has a web pod and a blue one, n2 a pod that is both."""
    both = near(term(HOST, app="web"), term(HOST, color="blue"))
    world = World(PLAIN)
    world.add(node("n1"), node("n2"), there("web", "n1", labels={"app": "web"}), there("blue", "n1", labels={"color": "blue"}))
    world.add(pod("wants", cpu="1", affinity=both))
    world.settle()
    assert world.node_of("wants") == ""
    world.add(there("web-and-blue", "n2", labels={"app": "web", "color": "blue"}))
    world.settle()
    assert world.node_of("wants") == "n2"


def test_terms_of_different_topology_may_be_met_by_different_pods_that_each_meet_both() -> None:
    """The label selectors hold for one pod; where it is seen, each term says for itself."""
    both = near(term(ZONE, app="web"), term(HOST, color="blue"))
    shape = {"app": "web", "color": "blue"}
    world = World(PLAIN)
    world.add(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "a"}), there("one", "n2", labels=shape))
    world.add(pod("wants", cpu="1", affinity=both))
    world.settle()
    assert world.node_of("wants") == "n2"


def test_the_first_of_a_group_that_wants_to_be_together_finds_a_place() -> None:
    world = World(PLAIN)
    both = near(term(ZONE, app="web"), term(ZONE, color="blue"))
    world.add(node("n1"), node("n2", labels={ZONE: "a"}), there("web", "n2", labels={"app": "web"}))
    world.add(*(pod(name, cpu="1", affinity=both, labels={"app": "web", "color": "blue"}) for name in ("first", "second")))
    world.settle()
    assert (world.node_of("first"), world.node_of("second")) == ("n2", "n2")


def test_a_pod_that_is_going_does_not_count_in_the_spread() -> None:
    """A rolling update: the old pod of zone a goes, so the new one may come there at once."""
    world = World(PLAIN)
    world.add(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}, cpu="1"))
    world.add(there("old", "n1", labels={"app": "web"}), there("full", "n2"))
    world.add(pod("new", cpu="1", labels={"app": "web"}, topologySpreadConstraints=spread(ZONE, app="web")))
    world.settle()
    assert world.node_of("new") == ""
    world.terminate("old")
    world.settle()
    assert world.node_of("new") == "n1"
    world.delete_pod("old")
    world.add(pod("next", cpu="1", labels={"app": "web"}, topologySpreadConstraints=spread(ZONE, app="web")))
    world.settle()
    assert world.node_of("next") == ""


PORT = {"containers": [{"name": "c", "image": "any", "ports": [{"containerPort": 80, "hostPort": 80}],
                        "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]}  # fmt: skip
PROMISES: dict[str, tuple[Json, Json]] = {
    "its port is free once that pod is gone": (PORT, PORT),
    "nobody refuses it once that pod is gone": ({"labels": {"app": "web"}, "affinity": far(term(HOST, app="web"))},
                                               {"labels": {"app": "web"}}),
    "nobody is there that it refuses": ({"labels": {"app": "web"}},
                                        {"labels": {"app": "web"}, "affinity": far(term(HOST, app="web"))}),
}  # fmt: skip


@pytest.mark.parametrize("why", PROMISES)
def test_a_place_is_promised_as_it_will_be_once_what_goes_there_is_gone(why: str) -> None:
    leaving, coming = PROMISES[why]
    world = World(PLAIN)
    world.add(node("n1", cpu="1"), pod("goes", cpu="1", nodeName="n1", **leaving))
    world.terminate("goes")
    world.add(group("g", minimum=1), pod("comes", cpu="1", group="g", **coming))
    world.settle()
    assert "can possibly be assigned to n1" in world.condition("comes")["message"]
    world.delete_pod("goes")
    world.settle()
    assert world.node_of("comes") == "n1"


SHY: Json = {"labels": {"app": "web"}, "affinity": far(term(ZONE, app="web"))}


@pytest.mark.parametrize("shape", [SHY, PORT], ids=["terms", "ports"])
def test_two_pods_that_exclude_each_other_are_not_promised_one_place(shape: Json) -> None:
    world = World(PLAIN)
    world.add(node("n1", cpu="2", labels={ZONE: "a"}), pod("goes", cpu="2", nodeName="n1"))
    world.terminate("goes")
    world.add(group("g", minimum=2), *(pod(f"p{n}", cpu="1", group="g", **shape) for n in range(2)))
    world.settle()
    messages = [world.condition(f"p{n}")["message"] for n in range(2)]
    assert sum("can possibly be assigned" in text for text in messages) <= 1, messages
    world.delete_pod("goes")
    world.settle()
    assert [world.node_of(f"p{n}") for n in range(2)] == ["", ""]


def test_a_pod_with_a_claim_that_waited_before_anybody_shunned_it_is_kept_away_all_the_same() -> None:
    """Its class was made while labels mattered to nobody."""
    world = World(conf("priority", "gang", "predicates"))
    store(world, storage_class("s"), claim("c", kind="s", volume="v"), volume("v", claimed="c", nodes=("n1",)))
    world.add(using("shunned", "c", labels={"app": "c"}))
    world.add(pod("shuns", cpu="1", priority=9, affinity=far(term(HOST, app="c"))))
    world.add(node("n1"))
    world.settle()
    assert world.node_of("shuns") == "n1"
    assert world.node_of("shunned") == ""


def test_no_pod_leans_on_a_gang_that_waits_for_the_rest_of_its_room() -> None:
    """One member of the gang has room in zone b, the other waits for a pod that goes: neither is there yet, so two web pods in
    zone a would be two against none."""
    world = World(conf("priority", "gang", "predicates"))
    world.add(node("a1", cpu="4", labels={ZONE: "a"}), node("b1", cpu="2", labels={ZONE: "b"}))
    world.add(there("goes", "b1"))
    world.terminate("goes")
    world.add(group("gang", minimum=2))
    for i in range(2):
        world.add(pod(f"gang-{i}", group="gang", cpu="1", labels={"app": "web"}, priority=9, nodeSelector={ZONE: "b"}))
    for i in range(2):
        world.add(pod(f"web-{i}", cpu="1", labels={"app": "web"}, topologySpreadConstraints=spread(ZONE, app="web")))
    world.cycle()
    assert [world.node_of(f"gang-{i}") for i in range(2)] == ["", ""]
    assert [world.node_of(f"web-{i}") for i in range(2)].count("a1") <= 1


@pytest.mark.parametrize(("weight", "where"), [("1", "n2"), ("0", "n1")])
def test_a_pod_that_a_placed_one_had_to_be_near_is_drawn_to_it(weight: str, where: str) -> None:
    """Kubernetes' hardPodAffinityWeight."""
    weights = {"pumice.hardPodAffinityWeight": weight, "leastrequested.weight": 0, "balancedresource.weight": 0}
    world = World(conf("predicates", {"nodeorder": weights}))
    world.add(node("n1"), node("n2"))
    near = {"labelSelector": {"matchLabels": {"app": "cache"}}, "topologyKey": "kubernetes.io/hostname"}
    needs = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [near]}}
    cache = {"app": "cache"}
    world.add(pod("web", labels=cache, affinity=needs, nodeName="n2"), pod("cache", cpu="1", labels=cache))
    world.settle()
    assert world.node_of("cache") == where
