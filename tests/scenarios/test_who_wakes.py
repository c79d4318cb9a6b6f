"""Pods that cannot be placed sleep until what they wait for changes, and nothing else wakes them.

Each case names a refusal, the event that ends it and events that do not; ``Watcher`` counts how often the pod is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import VGPU, group, node, pod, priority_class, queue
from kit.scheduler_confs import conf

from pumice.scheduler.state.jobs import Job

Json = dict[str, Any]
Event = Callable[[World], None]
HOST = "kubernetes.io/hostname"
TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}


def adds(*objects: Callable[[], Json] | Json) -> Event:
    return lambda world: world.add(*(obj() if callable(obj) else obj for obj in objects))


def deletes(*names: str) -> Event:
    def event(world: World) -> None:
        for name in names:
            world.delete_pod(name)

    return event


def resizes(name: str, **requests: str) -> Event:
    def event(world: World) -> None:
        obj = world.pods[f"default/{name}"]
        obj["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
        world.add(obj)

    return event


def small_pod_comes_and_goes(world: World) -> None:
    world.add(pod("small", cpu="100m", scheduler="default-scheduler", nodeName="n2"))
    world.delete_pod("small")


def heartbeat(world: World) -> None:
    for obj in world.nodes.values():
        obj["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastHeartbeatTime": str(world.now)}]
        world.add(obj)


def near(app: str, where: str = HOST) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": where}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def far_from(app: str) -> Json:
    return {"podAntiAffinity": near(app)}


@dataclass
class Case:
    """``having``: what is there. ``waits``: the pod that cannot go, ``because`` of this. ``wakes``: what lets it in."""

    having: list[Json]
    waits: Json
    because: str
    wakes: Event
    sleeps_through: list[Event] = field(default_factory=list)


def case_cpu() -> Case:
    return Case([node("n1", cpu="4"), node("n2", cpu="2"), pod("big", cpu="3", nodeName="n1")], pod("w", cpu="3"),
                "Insufficient cpu", deletes("big"))  # fmt: skip


def case_memory_node() -> Case:
    return Case([node("n1", memory="4Gi"), node("n2", memory="4Gi")], pod("w", memory="8Gi"), "Insufficient memory",
                adds(node("n3", memory="16Gi")), [adds(node("n4", memory="1Gi"))])  # fmt: skip


def case_cards() -> Case:
    held = {"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,8000,0:", "volcano.sh/vgpu-node": "n1"}
    return Case([node("n1", cards=1, mib=8000), node("n2"), pod("holder", mib=8000, nodeName="n1", annotations=held)],
                pod("w", mib=5000), "vgpu", deletes("holder"))  # fmt: skip


def case_card_type() -> Case:
    wanted = pod("w", mib=1000, annotations={"nvidia.com/use-gputype": "A100"})
    return Case([node("n1", cards=1), node("n2", cards=1)], wanted, "card", adds(node("n3", cards=1, kind="NVIDIA-A100")),
                [adds(node("n4", cards=1))])  # fmt: skip


def case_taint() -> Case:
    return Case([node("n1", taints=[TAINT]), node("n2", cpu="0")], pod("w", cpu="1"), "untolerated taint",
                adds(node("n1")), [adds(node("n1", taints=[TAINT], labels={"a": "b"}))])  # fmt: skip


def case_cordon() -> Case:
    return Case([node("n1", cordoned=True), node("n2", cpu="0")], pod("w", cpu="1"), "unschedulable", adds(node("n1")))


def case_selector() -> Case:
    return Case([node("n1"), node("n2")], pod("w", cpu="1", nodeSelector={"disk": "ssd"}), "affinity/selector",
                adds(node("n1", labels={"disk": "ssd"})), [adds(node("n1", labels={"disk": "hdd"}))])  # fmt: skip


def case_port() -> Case:
    def using(name: str, **spec: Any) -> Json:
        made = pod(name, cpu="1", **spec)
        made["spec"]["containers"][0]["ports"] = [{"hostPort": 80, "containerPort": 80}]
        return made

    return Case([node("n1"), node("n2", cpu="0"), using("other", nodeName="n1")], using("w"), "free ports", deletes("other"))


def case_affinity() -> Case:
    return Case([node("n1"), node("n2")], pod("w", cpu="1", affinity={"podAffinity": near("web")}), "pod affinity rules",
                adds(lambda: pod("web", cpu="1", labels={"app": "web"})),
                [adds(lambda: pod("db", cpu="1", labels={"app": "db"}))])  # fmt: skip


def case_affinity_by_label() -> Case:
    def labelled(world: World) -> None:
        obj = world.pods["default/late"]
        obj["metadata"]["labels"] = {"app": "web"}
        world.add(obj)

    return Case([node("n1"), node("n2"), pod("late", cpu="1", nodeName="n1")],
                pod("w", cpu="1", affinity={"podAffinity": near("web")}), "pod affinity rules", labelled)  # fmt: skip


def case_anti_affinity() -> Case:
    return Case([node("n1"), node("n2", cpu="0"), pod("web", cpu="1", labels={"app": "web"}, nodeName="n1")],
                pod("w", cpu="1", affinity=far_from("web")), "pod anti-affinity rules", deletes("web"))  # fmt: skip


def case_existing_anti_affinity() -> Case:
    lone = pod("lone", cpu="1", affinity=far_from("web"), nodeName="n1")
    return Case([node("n1"), node("n2", cpu="0"), lone], pod("w", cpu="1", labels={"app": "web"}),
                "existing pods anti-affinity", deletes("lone"))  # fmt: skip


def case_anti_affinity_by_namespace() -> Case:
    """It shuns the pods of namespaces with a label that n1's only neighbour's namespace loses."""
    term = {"labelSelector": {}, "topologyKey": HOST, "namespaceSelector": {"matchLabels": {"team": "loud"}}}
    shuns = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def quiet(world: World) -> None:
        world.engine.state.bookings.put_namespace("other", {"team": "quiet"})

    return Case([node("n1"), node("n2", cpu="0"), pod("neighbour", namespace="other", cpu="1", nodeName="n1")],
                pod("w", cpu="1", affinity=shuns), "pod anti-affinity rules", quiet)  # fmt: skip


def case_existing_anti_affinity_by_namespace() -> Case:
    """The only neighbour refuses pods of namespaces without a label that the pod's gets."""
    spaces = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    term = {"labelSelector": {}, "topologyKey": HOST, "namespaceSelector": spaces}
    lone = pod("lone", namespace="other", cpu="1", nodeName="n1",
               affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})  # fmt: skip

    def joins_a_team(world: World) -> None:
        world.engine.state.bookings.put_namespace("default", {"team": "quiet"})

    return Case([node("n1"), node("n2", cpu="0"), lone], pod("w", cpu="1"), "existing pods anti-affinity", joins_a_team)


def case_spread() -> Case:
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "s"}}}  # fmt: skip
    zones = [node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}, cpu="1")]
    there = [pod("s1", cpu="1", labels={"app": "s"}, nodeName="n1"), pod("f", cpu="900m", nodeName="n2")]
    return Case([*zones, *there], pod("w", cpu="1", labels={"app": "s"}, topologySpreadConstraints=[rule]),
                "topology spread", adds(lambda: pod("s2", cpu="10m", labels={"app": "s"}, nodeName="n2")))  # fmt: skip


ZONE_A, ZONE_B = {"zone": "a"}, {"zone": "b"}


def in_zone_of_one_that_shuns_it(wakes: Event) -> Case:
    """n1 and n2 are one zone, in which a pod on n1 wants no web; n1 has no room."""
    lone = pod("lone", cpu="1", affinity={"podAntiAffinity": near("web", "zone")}, nodeName="n1")
    return Case([node("n1", cpu="1", labels=ZONE_A), node("n2", labels=ZONE_A), lone],
                pod("w", cpu="2", labels={"app": "web"}), "existing pods anti-affinity", wakes)  # fmt: skip


def case_existing_anti_affinity_of_a_node_that_moves() -> Case:
    """Nothing is free on the node that moves to another zone, and its old zone takes the pod."""
    return in_zone_of_one_that_shuns_it(adds(node("n1", cpu="1", labels=ZONE_B)))


def case_the_only_one_that_shuns_leaves_another_node() -> Case:
    return in_zone_of_one_that_shuns_it(deletes("lone"))


def case_the_node_of_one_that_shuns_goes_before_its_pod() -> Case:
    return in_zone_of_one_that_shuns_it(lambda world: world.remove("Node", "n1"))


def case_the_node_of_one_that_is_shunned_goes_before_its_pod() -> Case:
    web = pod("web", cpu="1", labels={"app": "web"}, nodeName="n1")
    return Case([node("n1", cpu="1", labels=ZONE_A), node("n2", labels=ZONE_A), web],
                pod("w", cpu="1", affinity={"podAntiAffinity": near("web", "zone")}), "pod anti-affinity rules",
                lambda world: world.remove("Node", "n1"))  # fmt: skip


def case_the_emptiest_zone_goes() -> Case:
    rule = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "s"}}}  # fmt: skip
    there = pod("s1", cpu="1", labels={"app": "s"}, nodeName="n1")
    return Case([node("n1", labels=ZONE_A), node("n2", labels=ZONE_B, cpu="0"), there],
                pod("w", cpu="1", labels={"app": "s"}, topologySpreadConstraints=[rule]), "topology spread",
                lambda world: world.remove("Node", "n2"))  # fmt: skip


def case_gate() -> Case:
    gated = pod("w", cpu="1", gated=True)

    def opened(world: World) -> None:
        gated["spec"]["schedulingGates"] = []
        world.add(gated)

    return Case([node("n1"), node("n2")], gated, "", opened)


def case_gang_member_missing() -> Case:
    return Case([node("n1"), node("n2"), group("g", minimum=2)], pod("w", cpu="1", group="g"), "Not enough valid tasks",
                adds(lambda: pod("second", cpu="1", group="g")), [adds(lambda: pod("other", cpu="1100m"))])  # fmt: skip


def case_no_group() -> Case:
    return Case([node("n1"), node("n2")], pod("w", cpu="1", group="later"), "", adds(group("later", minimum=1)),
                [adds(group("another", minimum=1))])  # fmt: skip


def case_no_queue() -> Case:
    return Case([node("n1"), node("n2")], pod("w", cpu="1", queue="later"), "", adds(queue("later")))


def case_never() -> Case:
    return Case([node("n1"), node("n2")], pod("w", cpu="-1"), "negative", adds(pod("w2", cpu="1")))


CASES = {name.removeprefix("case_"): make for name, make in sorted(globals().items()) if name.startswith("case_")}
ALWAYS: list[Event] = [small_pod_comes_and_goes, heartbeat, adds(queue("unrelated")), adds(priority_class("unrelated", 7))]


class Watcher:
    """Counts how often a pod, or its job, is looked at."""

    def __init__(self, world: World, uid: str) -> None:
        self.looks = 0
        task = world.engine.state.tasks[uid]
        framework, evaluation = world.engine.framework, world.engine.placer.evaluation
        valid, evaluate = framework.job_valid, evaluation.scores

        def job_valid(job: Job) -> Any:
            self.looks += job is task.job
            return valid(job)

        def evaluated(cls: Any, rows: Any) -> Any:
            self.looks += cls is task.cls
            return evaluate(cls, rows)

        framework.job_valid, evaluation.scores = job_valid, evaluated  # type: ignore[method-assign]


@pytest.mark.parametrize("name", [name for name in CASES if name != "never"])
def test_a_pod_sleeps_until_what_it_waits_for_happens(name: str) -> None:
    case = CASES[name]()
    world = World()
    world.engine.state.bookings.put_namespace("other", {"team": "loud"})
    world.add(*case.having, case.waits)
    world.settle()
    assert world.node_of("w") == ""
    assert case.because in world.condition("w").get("message", "")
    watcher = Watcher(world, case.waits["metadata"]["uid"])
    for event in [*ALWAYS, *case.sleeps_through]:
        event(world)
        world.settle(5)
        assert world.node_of("w") == ""
    assert watcher.looks == 0
    case.wakes(world)
    assert world.engine.has_work(world.now)
    world.settle(1)
    assert world.node_of("w") != ""


def test_a_pod_that_can_never_be_placed_is_looked_at_once() -> None:
    case = CASES["never"]()
    world = World()
    world.add(*case.having, case.waits)
    world.settle()
    watcher = Watcher(world, case.waits["metadata"]["uid"])
    for event in ALWAYS:
        event(world)
        world.settle(5)
    world.add(node("n9", cpu="1000"))
    world.settle(120)
    assert (world.node_of("w"), watcher.looks) == ("", 0)
    assert case.because in world.condition("w")["message"]


def full_queue() -> World:
    world = World()
    world.add(node("n1", cpu="8"), queue("q", capability={"cpu": "2"}), queue("other"))
    world.add(pod("holder", cpu="2", queue="q"))
    world.settle()
    world.add(pod("w", cpu="1", queue="q"))
    world.settle()
    assert world.node_of("w") == ""
    return world


QUEUE_EVENTS: dict[str, Event] = {
    "a pod of the queue ends": deletes("holder"),
    "the capability is raised": adds(queue("q", capability={"cpu": "4"})),
    "a pod of the queue is resized in place": resizes("holder", cpu="1"),
}


@pytest.mark.parametrize("event", QUEUE_EVENTS)
def test_a_pod_that_its_queue_refused_goes_in_the_cycle_after_the_queue_has_room(event: str) -> None:
    world = full_queue()
    QUEUE_EVENTS[event](world)
    assert world.engine.has_work(world.now)
    world.cycle()
    assert world.node_of("w") == "n1"


def test_a_pod_beyond_its_share_goes_when_the_other_queues_ask_for_less() -> None:
    world = World()
    world.add(node("n1", cpu="8"), queue("a"), queue("b"))
    world.add(*(pod(f"b-{i}-x", cpu="4", queue="b") for i in range(2)))
    world.settle()
    world.add(*(pod(f"a-{i}-x", cpu="2", queue="a") for i in range(3)))
    world.settle()
    assert sum(bool(world.node_of(f"a-{i}-x")) for i in range(3)) in (0, 2)
    for i in range(2):
        world.delete_pod(f"b-{i}-x")
    assert world.engine.has_work(world.now)
    world.settle(2)
    assert all(world.node_of(f"a-{i}-x") for i in range(3))


def test_a_gang_that_waits_goes_when_the_node_of_one_that_shuns_it_goes_before_its_pod() -> None:
    world = World()
    lone = pod("lone", cpu="1", affinity={"podAntiAffinity": near("web", "zone")}, nodeName="n1")
    world.add(node("n1", cpu="1", labels=ZONE_A), node("n2", cpu="3", labels=ZONE_A), node("n3", cpu="1", labels=ZONE_B), lone)
    world.add(group("g", minimum=2), *(pod(f"w-{i}", cpu="1", labels={"app": "web"}, group="g") for i in range(2)))
    world.settle()
    assert world.node_of("w-0") == world.node_of("w-1") == ""
    world.remove("Node", "n1")
    world.settle(1)
    assert world.node_of("w-0") != ""
    assert world.node_of("w-1") != ""


def test_a_gang_whose_members_seek_one_another_is_not_tried_for_ever() -> None:
    """Its own allocations and releases do not activate it."""
    world = World()
    together = {"podAffinity": near("web")}
    world.add(node("n1", cpu="1"), node("n2", cpu="1"), group("g", minimum=2))
    world.add(*(pod(f"w-{i}", cpu="1", labels={"app": "web"}, group="g", affinity=together) for i in range(2)))
    world.settle()
    assert world.node_of("w-0") == world.node_of("w-1") == ""
    assert not world.engine.has_work(world.now)


@pytest.mark.parametrize("frees", ["its namespace joins a team", "the neighbour's node moves"])
def test_a_pod_whose_gang_changed_just_before_a_neighbour_ceased_to_refuse_it_is_not_refused_from_memory(frees: str) -> None:
    spaces = {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}
    term = {"labelSelector": {}, "topologyKey": "zone", "namespaceSelector": spaces}
    lone = pod("lone", namespace="other", cpu="1", nodeName="n1",
               affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})  # fmt: skip
    world = World()
    world.engine.state.bookings.put_namespace("other", {"team": "loud"})
    world.add(node("n1", cpu="1", labels=ZONE_A), node("n2", labels=ZONE_A), node("n3", cpu="1", labels=ZONE_B), lone)
    world.add(group("g", minimum=1), *(pod(name, cpu="1", group="g") for name in ("v", "w")))
    world.settle()
    assert (world.node_of("v"), world.node_of("w")) == ("n3", "")
    world.add({**world.pods["default/v"], "status": {"phase": "Running"}})
    if frees == "its namespace joins a team":
        world.engine.state.bookings.put_namespace("default", {"team": "quiet"})
    else:
        world.add(node("n1", cpu="1", labels=ZONE_B))
    world.settle()
    assert world.node_of("w") == "n2"


def test_a_pod_that_asks_for_nothing_hears_of_a_namespace_that_changes_sides() -> None:
    term = {"labelSelector": {}, "topologyKey": HOST, "namespaceSelector": {"matchLabels": {"team": "loud"}}}
    world = World()
    world.engine.state.bookings.put_namespace("other", {"team": "loud"})
    world.add(node("n1"), pod("neighbour", namespace="other", nodeName="n1"))
    world.add(pod("w", affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}))
    world.settle(2)
    assert world.node_of("w") == ""
    world.engine.state.bookings.put_namespace("other", {"team": "quiet"})
    world.settle(2)
    assert world.node_of("w") == "n1"


def test_a_pod_that_asks_for_nothing_hears_of_a_neighbour_that_is_labelled_anew_though_its_queue_has_no_share_left() -> None:
    world = World(conf("gang", "predicates", "proportion"))
    world.add(queue("rich", weight=1, capability={"cpu": "4"}), node("n1", cpu="4"))
    world.add(pod("neighbour", cpu="4", labels={"app": "web"}, queue="rich"))
    world.add(pod("w", affinity=far_from("web"), queue="rich"))
    world.settle(2)
    assert world.node_of("w") == ""
    labelled = world.pods["default/neighbour"]
    labelled["metadata"]["labels"] = {"app": "other"}
    world.add(labelled)
    world.settle(2)
    assert world.node_of("w") == "n1"


def test_a_pod_hears_of_it_when_a_gang_that_would_stand_loses_its_pod_group() -> None:
    """n1 takes three pods: one that goes, of which a gang of three would have the place, and another pod."""
    world = World()
    world.add(node("n1", cpu="3", pods=3), pod("goes", cpu="1", nodeName="n1"))
    world.terminate("goes")
    world.add(group("g", minimum=3), *(pod(f"g-{i}", cpu="1", group="g") for i in range(3)))
    world.settle(2)
    world.add(pod("w"))
    world.settle(2)
    assert world.node_of("w") == "", "what is free is kept for the gang"
    world.remove("PodGroup", "default/g")
    world.settle(2)
    assert world.node_of("w") == "n1"


def test_a_pod_that_no_node_can_ever_hold_stays_so_while_others_have_what_it_asks_for() -> None:
    """Its gang was tried again in every cycle, where amid its trial other reasons came first than at its end."""
    world = World()
    world.add(node("n1", cards=2, mib=8000))
    two = {f"{VGPU}-number": "2", f"{VGPU}-memory": "1000", f"{VGPU}-cores": "100"}
    limits = [two, {f"{VGPU}-number": "1", f"{VGPU}-memory": "1000"}]
    containers = [{"name": f"c{at}", "image": "i", "resources": {"limits": each}} for at, each in enumerate(limits)]
    world.add(pod("never", containers=containers))
    world.settle()
    never = world.engine.state.tasks[world.pods["default/never"]["metadata"]["uid"]]
    assert world.engine.placer.unresolvable(never.cls)
    world.add(*(pod(f"half-{at}", mib=1000, cores=100) for at in range(2)))
    world.settle()
    assert "Insufficient volcano.sh/vgpu-cores" in world.engine.placer.why(never.cls).text
    assert world.engine.placer.unresolvable(never.cls)
    world.add(node("n2", cards=3, mib=8000))
    world.settle()
    assert world.node_of("never") == "n2"
