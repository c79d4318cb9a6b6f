"""Pods with claims of devices in a play: their claims are made, written and given back as in a cluster, and audited."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kit.device_claims import GPU, ClaimWorld, cards, whole
from kit.objects import node, pod

from pumice.audit.auditor import Books
from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of
from pumice.simulation.changes import added, without
from pumice.simulation.manifests import unplaced
from pumice.simulation.outcome import Outcome, outcome_of
from pumice.simulation.play import Outage, Simulation, Submission

Json = dict[str, Any]
KINDS = {"nodes": "nodes", "pods": "pods", "deviceClasses": "device_classes", "resourceSlices": "slices",
         "resourceClaims": "claims"}  # fmt: skip


def dumped(world: ClaimWorld) -> dict[str, list[Json]]:
    return {key: copy.deepcopy(list(getattr(world, table).values())) for key, table in KINDS.items()}


def playing(objects: dict[str, list[Json]]) -> Simulation:
    case = ClusterSnapshot(now=2e9, objects=objects)
    return Simulation(engine_of(case), case.now, case.objects)


def played(simulation: Simulation, *submissions: Submission, outages: tuple[Outage, ...] = ()) -> Outcome:
    for _ in simulation.play(submissions, outages):
        pass
    found = outcome_of("a", simulation, len(submissions), len(submissions))
    assert not found.violations
    assert list(simulation.engine.state.device_claims.validate()) == []
    return found


def crowded(each: int = 1) -> ClaimWorld:
    """Pod a has the devices of node n0, and b waits for them, with a claim of a template as well."""
    world = ClaimWorld()
    world.nodes_with(1, each)
    world.ask("a", whole(each))
    world.settle()
    world.ask("b", whole())
    return world


def test_devices_of_a_claim_are_had_by_the_next_pod_when_the_one_that_uses_them_ends() -> None:
    simulation = playing(dumped(crowded()))
    simulation.runs_for(next(run for run in simulation.runs_alive() if run.key == "default/a"), 100.0)
    assert played(simulation).starts == {"default/b": (pytest.approx(100, abs=1), "n0")}


def test_a_pod_that_is_made_anew_has_a_claim_of_its_template_made_anew() -> None:
    found = played(playing(dumped(crowded())), outages=(Outage("n0", 50.0, 60.0),))
    assert sorted([*found.starts, *found.waits]) == ["default/a", "default/b"]
    assert [len(found.starts), len(found.waits)] == [1, 1]
    assert found.stayed == []
    assert not found.fits_no_node


def test_pods_that_arrive_with_a_template_that_the_dump_knows_have_claims() -> None:
    world = crowded()
    template = unplaced({**world.pods["default/b"], "metadata": {}})
    simulation = playing(dumped(world))
    simulation.runs_for(next(run for run in simulation.runs_alive() if run.key == "default/a"), 10.0)
    simulation.runs_for(next(run for run in simulation.runs_alive() if run.key == "default/b"), 20.0)
    found = played(simulation, Submission(1.0, "later", (template,), names=("later",)))
    assert [found.starts[f"default/{name}"][0] for name in ("b", "later")] == pytest.approx([10, 29], abs=0.5)


def test_a_template_that_nobody_knows_is_the_reason_why_a_pod_is_not_placed() -> None:
    stranger = unplaced(pod("x", cpu="1", resourceClaims=[{"name": "c", "resourceClaimTemplateName": "unknown"}]))
    found = played(playing(dumped(crowded())), Submission(0.0, "x", ({**stranger, "metadata": {}},)))
    assert "to be made of template unknown" in found.fits_no_node["default/x"]


def test_pods_of_one_claim_start_together_and_its_devices_are_free_after_the_last_of_them() -> None:
    world = ClaimWorld()
    world.nodes_with(1, 1)
    world.shared("both", whole())
    world.use("a", "both")
    world.use("b", "both")
    world.ask("c", whole())
    simulation = playing(dumped(world))
    for run in simulation.runs_alive():
        simulation.runs_for(run, {"default/a": 10.0, "default/b": 30.0}.get(run.key, 1e9))
    starts = played(simulation).starts
    assert [round(starts[f"default/{name}"][0]) for name in "abc"] == [0, 0, 30]


def test_a_resource_for_which_a_class_stands_is_had_by_a_claim_that_the_play_makes() -> None:
    world = ClaimWorld()
    world.publish({**GPU, "spec": {"extendedResourceName": "example.com/gpu"}}, cards("n0", 1))
    world.add(node("n0"))
    for name in "ab":
        world.add(pod(name, cpu="1", limits={"example.com/gpu": "1"}))
    simulation = playing(dumped(world))
    for run in simulation.runs_alive():
        simulation.runs_for(run, 40.0)
    starts = played(simulation).starts
    assert sorted(round(waited) for waited, _ in starts.values()) == [0, 40]


def test_the_auditor_of_a_play_judges_devices_that_claims_hold_twice() -> None:
    objects = dumped(crowded(2))
    simulation = playing(objects)
    held = simulation.claims.claims["default/a-c0"]["status"]["allocation"]["devices"]["results"]
    other = copy.deepcopy(simulation.claims.claims["default/a-c0"])
    other["metadata"] |= {"name": "forged", "uid": "forged", "ownerReferences": []}
    simulation.claims.claims["default/forged"] = other
    simulation.claims._index("default/forged", other)
    found = list(simulation.claims.over("n0", ()))
    assert found == [f"device gpu.example.com/n0/{one['device']} is for one claim and is held by default/a-c0, default/forged"
                     for one in sorted(held, key=lambda one: str(one["device"]))]  # fmt: skip
    assert list(Books(objects["nodes"]).shares_on("n0")) == []


def test_a_claim_and_a_slice_that_cannot_be_read_end_no_play() -> None:
    objects = dumped(crowded())
    objects["resourceClaims"].append({"metadata": {"name": "odd", "namespace": "default", "uid": "odd"},
                                      "status": {"allocation": {"devices": {"results": ["x"]}}}})  # fmt: skip
    objects["resourceSlices"].append({"metadata": {"name": "odd"}, "spec": {"driver": 7}})
    assert played(playing(objects)).waits == ["default/b"]


def test_nodes_that_are_added_bring_the_devices_of_those_they_are_like_and_nodes_that_go_take_theirs() -> None:
    objects = dumped(crowded())
    objects["nodes"][0]["metadata"]["labels"] = {"nvidia.com/gpu.product": "H100"}
    more, _ = added(objects, "nodes=2,model=H100")
    assert played(playing(copy.deepcopy(more))).starts["default/b"][1].startswith("added-")
    fewer, _ = without(more, "node=added-1")
    assert len(fewer["resourceSlices"]) == 2


@pytest.mark.parametrize("what", ["queue=q", "namespace=default"])
def test_claims_of_pods_that_are_left_out_hold_nothing(what: str) -> None:
    objects = dumped(crowded())
    for one in objects["pods"][:1]:
        one["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": "q"}
    shared = {"metadata": {"name": "s", "namespace": "default", "uid": "s"}, "spec": whole()["spec"],
              "status": {"reservedFor": [{"uid": "pod-a"}], "allocation": {"devices": {"results": []}}}}  # fmt: skip
    left, _ = without({**objects, "resourceClaims": [*objects["resourceClaims"], shared]}, what)
    assert [one["metadata"]["name"] for one in left["resourceClaims"]] == (["b-c0", "s"] if what == "queue=q" else ["s"])
    assert "status" not in left["resourceClaims"][-1]
    if what == "queue=q":
        assert set(played(playing(left)).starts) == {"default/b"}
