"""The cases by which an allocator of claims is accepted, by their numbers; those that need a scheduler or a driver are not here.

S is a shared card of 80 Gi and 100 cores. Facts: ``docs/reference/claims.md``.
"""

from __future__ import annotations

from kit.claims import DRIVER, Cluster, asks, claim, device, of_memory, published, shared_card, with_counters

S = shared_card()


def test_1_claims_share_a_card_as_long_as_it_has_room() -> None:
    cluster = Cluster(published(S))
    assert [cluster.gives(of_memory(amount, cores="30")) for amount in ("27Gi", "27Gi", "26Gi")] == [["g card-0"]] * 3
    cluster = Cluster(published(S))
    assert [cluster.gives(of_memory("27Gi", cores="30")) for _ in range(2)] == [["g card-0"]] * 2
    refusal = cluster.gives(of_memory("27Gi", cores="30"))
    assert refusal[1].endswith("gpu.example.com/n1/card-0: capacity memory: wants 27Gi, 26Gi is free")


def test_2_what_is_asked_is_rounded_up_by_the_step() -> None:
    cluster = Cluster(published(S))
    cluster.gives(of_memory("3G", cores="0"))
    assert cluster.last[0]["consumedCapacity"] == {"memory": "2862Mi", "cores": "0"}  # 3001024512 bytes


def test_3_who_asks_nothing_takes_the_defaults() -> None:
    cluster = Cluster(published(S))
    assert cluster.gives(claim(asks())) == ["g card-0"]
    assert cluster.last[0]["consumedCapacity"] == {"memory": "80Gi", "cores": "100"}
    both = "capacity memory: wants 80Gi, 0 is free, and capacity cores: wants 100, 0 is free"
    assert both in cluster.gives(claim(asks()))[1]


def test_4_a_capacity_without_a_policy_is_taken_whole() -> None:
    card = shared_card(capacity={"memory": {"value": "80Gi"}, "cores": {"value": "100"}})
    cluster = Cluster(published(card))
    cluster.gives(of_memory("1Gi"))
    assert cluster.last[0]["consumedCapacity"] == {"memory": "1Gi", "cores": "100"}
    assert "capacity cores: wants 100, 0 is free" in cluster.gives(of_memory("1Gi"))[1]


def test_5_a_capacity_is_asked_by_the_key_that_is_published() -> None:
    refusal = Cluster(published(S)).gives(claim(asks(capacity={f"{DRIVER}/memory": "1Gi"})))
    assert "no such capacity; the device has cores, memory: write memory" in refusal[1]


def test_6_two_devices_are_two_cards_and_two_requests_may_be_one() -> None:
    half = {"capacity": {"memory": "1Gi", "cores": "1"}}
    assert Cluster(published(S)).gives(claim(asks(count=2, **half)))[0].startswith("node n1: the claims cannot be allocated")
    both = (asks("a", **half), asks("b", **half))
    assert Cluster(published(S)).gives(claim(*both)) == ["a card-0", "b card-0"]
    apart = [{"distinctAttribute": f"{DRIVER}/uuid"}]
    assert "another device has GPU-card-0, too" in "".join(Cluster(published(S)).gives(claim(*both, constraints=apart)))
    two = Cluster(published(S, shared_card("card-1")))
    assert two.gives(claim(*both, constraints=apart)) == ["a card-0", "b card-1"]


def test_7_requests_bound_to_one_card_have_room_on_it_together() -> None:
    cluster = Cluster(published(S, shared_card("card-1")))
    small, large = asks("a", capacity={"memory": "1Gi", "cores": "0"}), asks("b", capacity={"memory": "80Gi", "cores": "0"})
    assert cluster.gives(claim(small, large)) == ["a card-0", "b card-1"]
    assert "cannot be allocated" in Cluster(published(S, shared_card("card-1"))).gives(
        claim(small, large, constraints=[{"matchAttribute": f"{DRIVER}/uuid"}])
    )[0]  # fmt: skip


def _card_of_both_worlds() -> Cluster:
    whole = [{"counterSet": "card", "counters": {"memory": {"value": "80Gi"}}}]
    return Cluster(*with_counters(shared_card("shared", consumesCounters=whole), device("p0", "40Gi"), device("p1", "40Gi")))


def test_8_a_shared_device_in_use_has_paid_its_counters() -> None:
    cluster = _card_of_both_worlds()
    part = claim(asks(expression="!device.allowMultipleAllocations"))
    assert cluster.gives(of_memory("1Gi", cores="1")) == ["g shared"]
    assert cluster.gives(of_memory("1Gi", cores="1")) == ["g shared"]  # the second share pays nothing
    assert "counter card/memory: wants 40Gi, 0 is free" in cluster.gives(part)[1]
    cluster = _card_of_both_worlds()
    assert cluster.gives(part) == ["g p0"]
    assert "counter card/memory: wants 80Gi, 40Gi is free" in cluster.gives(of_memory("1Gi", cores="1"))[1]


def test_9_partitions_and_the_whole_card_exclude_one_another() -> None:
    cluster = Cluster(*with_counters(device("whole", "80Gi"), device("p0", "40Gi"), device("p1", "40Gi")))
    assert cluster.gives(claim(asks(expression=f'device.attributes["{DRIVER}"].uuid == "p0"'))) == ["g p0"]
    assert cluster.gives(claim(asks())) == ["g p1"]
    assert "counter card/memory: wants 80Gi, 0 is free" in cluster.gives(claim(asks()))[1]


def test_10_counters_of_two_drivers_with_one_pool_name_are_apart() -> None:
    other = {"name": "other", "counters": {"memory": {"value": "80Gi"}}}
    draws = [{"counterSet": "other", "counters": {"memory": {"value": "80Gi"}}}]
    cluster = Cluster(*with_counters(device("a0", "80Gi"), driver="a.example.com"),
                      *with_counters(device("b0", consumesCounters=draws), driver="b.example.com", sets=[other]))  # fmt: skip
    assert cluster.gives(claim(asks())) == ["g a0"]
    assert cluster.gives(claim(asks())) == ["g b0"]
    assert cluster.gives(claim(asks()))[0].startswith("node n1")


def test_11_a_device_that_was_turned_down_holds_nothing() -> None:
    unhealthy = {"taints": [{"key": "sick", "value": "xid", "effect": "NoSchedule"}]}
    slices = with_counters(device("p0", "60Gi", **unhealthy), device("p1", "60Gi"))
    assert Cluster(*slices).gives(claim(asks())) == ["g p1"]
    tolerant = asks(tolerations=[{"key": "sick", "operator": "Exists"}])
    assert Cluster(*slices).gives(claim(tolerant)) == ["g p0"]
    assert "taint sick=xid:NoSchedule: not tolerated" in Cluster(*slices[:1], slices[1]).gives(claim(asks(count=2)))[1]


def test_12_a_device_that_vanishes_keeps_what_it_consumed() -> None:
    cluster = Cluster(*with_counters(device("p0", "60Gi"), device("p1", "60Gi")))
    assert cluster.gives(claim(asks())) == ["g p0"]
    cluster.publish(*with_counters(device("p1", "60Gi")))
    assert "counter card/memory: wants 60Gi, 20Gi is free" in cluster.gives(claim(asks()))[1]
    cluster.publish(*with_counters(device("p0", "1Gi"), device("p1", "60Gi")))  # said to be smaller than it was
    assert "wants 60Gi, 20Gi is free" in cluster.gives(claim(asks()))[1]
    shared = Cluster(published(S))
    shared.gives(of_memory("80Gi", cores="0"))
    shared.publish(published(device("other")))
    shared.publish(published(S))
    assert "wants 1Gi, 0 is free" in shared.gives(of_memory("1Gi", cores="0"))[1]


def test_12_nothing_is_given_beside_a_vanished_device_that_nobody_has_seen() -> None:
    cluster = Cluster(*with_counters(device("p1", "1Gi")))
    cluster.claims = [{"status": {"allocation": {"devices": {"results": [{"driver": DRIVER, "pool": "n1", "device": "p0"}]}}}}]
    cluster.publish(*with_counters(device("p1", "1Gi"), device("free")))
    assert cluster.gives(claim(asks())) == ["g free"]
    assert f"{DRIVER}/n1/p0 is in use and published no more: nobody knows what it consumes" in cluster.gives(claim(asks()))[1]


def test_13_admin_access_consumes_nothing_and_is_seen_by_nobody() -> None:
    cluster = Cluster(*with_counters(device("p0", "80Gi")), published(S, name="shared", pool="shared"))
    assert cluster.gives(claim(asks()), claim(asks(), name="d")) == ["g p0", "g card-0"]
    watcher = claim(asks(adminAccess=True, allocationMode="All"))
    assert cluster.gives(watcher) == ["g p0", "g card-0"]
    assert [sorted(one) for one in cluster.last] == [
        ["adminAccess", "device", "driver", "pool", "request"],
        ["adminAccess", "device", "driver", "pool", "request", "shareID"],
    ]
    cluster.claims = cluster.claims[-1:]
    cluster.publish(*with_counters(device("p0", "80Gi")))
    assert cluster.gives(claim(asks())) == ["g p0"]


def test_14_all_means_full_cards_too() -> None:
    cluster = Cluster(published(S, shared_card("card-1")))
    everything = claim(asks(allocationMode="All", capacity={"memory": "1Gi", "cores": "0"}))
    assert cluster.gives(everything) == ["g card-0", "g card-1"]
    cluster.gives(of_memory("79Gi", cores="0"))
    assert "capacity memory: wants 1Gi, 0 is free" in "".join(cluster.gives(everything))
    large = claim(asks(allocationMode="All", capacity={"memory": "100Gi"}))
    assert "no device is here" not in cluster.gives(large)[1]
    assert "the device has less in all" in cluster.gives(large)[1]


def test_15_of_half_a_pool_nothing_is_given() -> None:
    half = published(device("p0"), slices=2, generation=3)
    refusal = Cluster(half).gives(claim(asks()))
    incomplete = "pool gpu.example.com/n1 is incomplete, generation 3: 1 of 2 slices are there"
    assert refusal == [f"node n1: the claims cannot be allocated; {incomplete}"]
    assert Cluster(half).gives(claim(asks(allocationMode="All")))[0].endswith(f"asks for all devices, but {incomplete}")


def test_16_a_selector_that_throws_is_named_with_its_claim_and_device() -> None:
    cluster = Cluster(published(device("p0", attributes={})))
    refusal = cluster.gives(claim(asks(expression=f'device.attributes["{DRIVER}"].uuid == "p0"')))
    assert refusal[0] == "claim team/c, request g, selector 0, device gpu.example.com/n1/p0: no such key: uuid"
    assert cluster.gives(claim(asks(), name="other")) == ["g p0"]


def test_17_the_first_alternative_that_fits_is_taken() -> None:
    def part(name: str, memory: str) -> dict[str, object]:
        return {"name": name, "deviceClassName": "gpu", "capacity": {"requests": {"memory": memory}}}

    cluster = Cluster(published(S))
    choice = claim({"name": "g", "firstAvailable": [part("large", "100Gi"), part("small", "40Gi")]})
    assert cluster.gives(choice) == ["g/small card-0"]
    assert cluster.last[0]["consumedCapacity"]["memory"] == "40Gi"
