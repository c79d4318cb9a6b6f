"""The search beside its first answer: pauses, budgets, kinds of nodes, configuration, and the rows of the page of differences."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kit.claims import DRIVER, Cluster, asks, claim, device, published, shared_card, with_counters

from pumice.claims.reasons import Cause, Unallocated
from pumice.claims.search import finished

UUID = f"{DRIVER}/uuid"


def _taken(cluster: Cluster, *claims: dict[str, Any], node: str = "n1") -> str:
    return " ".join(one.partition(" ")[2] for one in cluster.gives(*claims, node=node))


def test_a_hostile_claim_is_given_up_and_never_keeps_others_long() -> None:
    devices = [device(f"d{at}", attributes={"uuid": {"string": f"u{at % 31}"}}) for at in range(128)]
    cluster = Cluster(*(published(*devices, name=f"s{at}", pool=f"p{at}") for at in range(8)))
    hostile = claim(*(asks(f"r{at}") for at in range(32)), constraints=[{"distinctAttribute": UUID}])
    search = cluster.search(hostile, budget=20_000)
    longest, last = 0.0, time.thread_time()
    while True:
        try:
            next(search)
        except StopIteration as end:
            found = end.value
            break
        now = time.thread_time()  # its own: others may be at work
        longest, last = max(longest, now - last), now
    assert isinstance(found, Unallocated)
    assert (found.cause, found.text) == (Cause.BUDGET, "the search was given up after 20000 steps")
    assert longest < 0.1


def test_a_search_without_a_budget_left_says_so() -> None:
    found = finished(Cluster(published(shared_card())).search(claim(asks()), budget=0))
    assert isinstance(found, Unallocated)
    assert found.cause is Cause.BUDGET


def test_a_request_that_no_device_serves_ends_the_search_at_once() -> None:
    cluster = Cluster(published(*(device(f"d{at}") for at in range(100))))
    impossible = asks("z", expression="device.driver == 'none'")
    found = finished(cluster.search(claim(*(asks(f"r{at}") for at in range(20)), impossible), budget=5_000))
    assert isinstance(found, Unallocated)
    assert found.cause is Cause.NODE
    assert "claim team/c, request z, selector 0 says no" in found.lines[-1]


def test_devices_without_the_attribute_of_a_constraint_are_not_tried_beside_others() -> None:
    cluster = Cluster(published(*(device(f"d{at}") for at in range(100))))
    apart = {"matchAttribute": f"{DRIVER}/rack", "requests": ["z"]}
    asked = claim(*(asks(f"r{at}") for at in range(20)), asks("z", count=3), constraints=[apart])
    found = finished(cluster.search(asked, budget=5_000))
    assert isinstance(found, Unallocated)
    assert found.cause is Cause.NODE
    assert "the device has no such attribute" in found.lines[-1]


def _selecting(term: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


@pytest.mark.parametrize(("where", "n1", "n2"), [
    ({"nodeName": "n1"}, "p0", ""), ({"allNodes": True}, "p0", "p0"),
    (_selecting({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}), "", "p0"),
    (_selecting({"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z2"]}]}), "p0", "p0"),
    (_selecting({}), "", ""),
])  # fmt: skip
def test_a_slice_is_for_the_nodes_that_it_names(where: dict[str, Any], n1: str, n2: str) -> None:
    for node, expected in (("n1", n1), ("n2", n2)):
        taken = _taken(Cluster(published(device("p0"), **where)), claim(asks()), node=node)
        assert taken == expected or (not expected and "cannot be allocated" in taken)


def test_a_slice_may_leave_the_nodes_to_its_devices() -> None:
    slices = published(device("a", nodeName="n2"), device("b", allNodes=True), perDeviceNodeSelection=True)
    cluster = Cluster(slices)
    assert _taken(cluster, claim(asks())) == "b"
    assert "nodeSelector" not in cluster.claims[-1]["status"]["allocation"]
    assert _taken(cluster, claim(asks()), node="n2") == "a"
    (term,) = cluster.claims[-1]["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}


def test_configuration_comes_from_classes_and_from_the_claim() -> None:
    def opaque(word: str) -> dict[str, Any]:
        return {"opaque": {"driver": DRIVER, "parameters": {"is": word}}}

    mig = {"metadata": {"name": "mig"}, "spec": {"config": [opaque("class")]}}
    requests = asks("a", deviceClassName="mig"), asks("b", deviceClassName="mig")
    cluster = Cluster(published(device("p0"), device("p1")), classes=[mig])
    own = [{**opaque("b"), "requests": ["b"]}, {**opaque("z"), "requests": ["z"]}, opaque("all")]
    cluster.gives(claim(*requests, config=own))
    said = cluster.claims[-1]["status"]["allocation"]["devices"]["config"]
    assert [(one["source"], one.get("requests"), one["opaque"]["parameters"]["is"]) for one in said] == [
        ("FromClass", ["a", "b"], "class"), ("FromClaim", ["b"], "b"), ("FromClaim", None, "all"),
    ]  # fmt: skip


def test_older_generations_and_other_classes_do_not_count() -> None:
    cluster = Cluster(published(device("new"), name="b", generation=4), published(device("old"), name="a", generation=3))
    assert _taken(cluster, claim(asks())) == "new"
    assert cluster.gives(claim(asks(deviceClassName="none"))) == ["claim team/c, request g: there is no device class none"]


def test_a_claim_holds_no_more_devices_than_its_status() -> None:
    cluster = Cluster(published(*(device(f"d{at}") for at in range(40))))
    assert cluster.gives(claim(asks(count=33))) == ["claim team/c: 33 devices are asked for, a claim can hold 32"]
    many = {"name": "many", "deviceClassName": "gpu", "count": 20}
    either = {"name": "e", "firstAvailable": [many, {"name": "few", "deviceClassName": "gpu"}]}
    assert len(cluster.gives(claim(asks(count=20), either))) == 21


def test_alternatives_that_leave_no_room_for_further_requests_are_passed_over_without_a_search_of_their_devices() -> None:
    cluster = Cluster(published(*(device(f"d{at}") for at in range(64))))
    sizes = [{"name": name, "deviceClassName": "gpu", "count": count} for name, count in (("whole", 32), ("half", 16))]
    found = cluster.gives(claim({"name": "a", "firstAvailable": sizes}, {"name": "b", "firstAvailable": sizes}))
    assert [one.partition(" ")[0] for one in found] == ["a/half"] * 16 + ["b/half"] * 16


def test_pools_are_valid_or_give_nothing() -> None:
    twice = Cluster(published(device("p0"), device("p0")))
    assert twice.gives(claim(asks()))[0].endswith("is invalid, generation 1: two devices have the name p0")
    lost = device("p0", consumesCounters=[{"counterSet": "gone", "counters": {"memory": {"value": "1"}}}])
    assert "device p0 draws on counter set gone, which is not there" in Cluster(published(lost)).gives(claim(asks()))[0]
    unknown = device("p0", consumesCounters=[{"counterSet": "card", "counters": {"odd": {"value": "1"}}}])
    assert "draws on counter odd of counter set card" in Cluster(*with_counters(unknown)).gives(claim(asks()))[0]


# -- rows of docs/reference/claims.md that the cases of acceptance leave out ---------------------------------------------


def test_c_03_a_shared_device_that_the_search_gave_back_holds_nothing() -> None:
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "60Gi"}}}]
    card = shared_card("a", consumesCounters=draws, attributes={"uuid": {"string": "a"}, "kind": {"string": "x"}})
    plain = device("b", "60Gi", attributes={"uuid": {"string": "b"}, "kind": {"string": "y"}})
    alike = [{"matchAttribute": f"{DRIVER}/kind"}]
    other = published(device("c", attributes={"kind": {"string": "y"}}), name="z", pool="z")
    cluster = Cluster(*with_counters(card, plain), other)
    both = claim(asks("one"), asks("two", expression="!device.allowMultipleAllocations"), constraints=alike)
    assert _taken(cluster, both) == "b c"


def test_c_07_fractions_are_exact() -> None:
    half = {"default": "1", "validRange": {"min": "500m", "step": "500m"}}
    cluster = Cluster(published(shared_card(capacity={"m": {"value": "2", "requestPolicy": half}})))
    cluster.gives(claim(asks(capacity={"m": "1250m"})))
    assert cluster.last[0]["consumedCapacity"] == {"m": "1500m"}


def test_c_08_all_devices_of_a_request_are_distinct() -> None:
    racks = [device(f"d{at}", attributes={"rack": {"string": rack}}) for at, rack in enumerate("xyxz")]
    apart = [{"distinctAttribute": f"{DRIVER}/rack"}]
    cluster = Cluster(published(*racks))
    assert cluster.gives(claim(asks(count=3), constraints=apart)) == ["g d0", "g d1", "g d3"]
    assert "cannot be allocated" in Cluster(published(*racks[:3])).gives(claim(asks(count=3), constraints=apart))[0]


def test_c_09_all_takes_devices_with_counters() -> None:
    assert Cluster(*with_counters(device("p0", "40Gi"), device("p1", "40Gi"))).gives(claim(asks(allocationMode="All"))) == [
        "g p0", "g p1",
    ]  # fmt: skip


def test_c_10_all_under_a_constraint_lets_others_choose_again() -> None:
    racks = [device(f"d{at}", attributes={"rack": {"string": rack}}) for at, rack in enumerate("xyy")]
    kind = published(*racks, pool="racks", name="racks")
    rest = claim(asks("one", expression=f'device.driver == "{DRIVER}"'),
                 asks("all", allocationMode="All", expression=f'device.attributes["{DRIVER}"].rack == "y"'),
                 constraints=[{"matchAttribute": f"{DRIVER}/rack"}])  # fmt: skip
    other = published(device("e0", attributes={"rack": {"string": "y"}}), name="z", pool="z")
    assert "cannot be allocated" in Cluster(kind, other).gives(rest)[0]  # d1 is one of all, and e0 too
    some = [{**one, "attributes": {**one["attributes"], "all": {"bool": at == 2}}} for at, one in enumerate(racks)]
    rest["spec"]["devices"]["requests"][1]["exactly"]["selectors"][0]["cel"]["expression"] = f'device.attributes["{DRIVER}"].all'
    assert Cluster(published(*some)).gives(rest) == ["one d1", "all d2"]


def test_c_12_the_broken_pool_of_another_node_does_not_matter() -> None:
    broken = with_counters(device("p0", "1Gi"), pool="n2")[1:]
    broken[0]["spec"]["nodeName"] = "n2"
    assert Cluster(published(device("d")), *broken).gives(claim(asks(allocationMode="All"))) == ["g d"]


def test_c_13_an_over_committed_counter_closes_what_draws_on_it() -> None:
    def card(name: str, memory: str) -> dict[str, Any]:
        return {"name": name, "counters": {"memory": {"value": memory}}}

    def part(name: str, of: str) -> dict[str, Any]:
        return device(name, consumesCounters=[{"counterSet": of, "counters": {"memory": {"value": "40Gi"}}}])

    parts = part("a0", "a"), part("a1", "a"), part("b0", "b")
    cluster = Cluster(*with_counters(*parts, sets=[card("a", "80Gi"), card("b", "80Gi")]))
    assert cluster.gives(claim(asks(count=2))) == ["g a0", "g a1"]
    cluster.publish(*with_counters(*parts, sets=[card("a", "60Gi"), card("b", "80Gi")]))
    assert cluster.gives(claim(asks())) == ["g b0"]


def test_c_13_an_over_committed_counter_closes_a_shared_device_that_has_paid() -> None:
    share = shared_card("share", consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": "40Gi"}}}])
    part = device("part", "40Gi")
    cluster = Cluster(*with_counters(share, part, sets=[{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]))
    least = {"memory": "1Gi", "cores": "1"}
    assert cluster.gives(claim(asks(capacity=least)), claim(asks(expression="device.allowMultipleAllocations == false"))) == [
        "g share", "g part",
    ]  # fmt: skip
    assert cluster.gives(claim(asks(capacity=least))) == ["g share"]
    cluster.publish(*with_counters(share, part, sets=[{"name": "card", "counters": {"memory": {"value": "60Gi"}}}]))
    assert "counter card/memory" in cluster.gives(claim(asks(capacity=least)))[-1]


def test_devices_that_fail_alike_are_told_of_in_one() -> None:
    devices = [device(f"d{at}") for at in range(6)]
    (text,) = Cluster(published(*devices)).gives(claim(asks(expression="device.driver == 'other'")))[1:]
    assert text == (f"claim team/c, request g: 1 wanted; {DRIVER}/n1/d0 and 5 others: "
                    "selector: claim team/c, request g, selector 0 says no")  # fmt: skip
