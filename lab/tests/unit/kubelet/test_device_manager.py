"""The device manager against what was observed of kubelet 1.36, case by case (ADR 120)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from lab.tests.unit.kubelet.world import NUMBER, FakePlugin, devices

from pumice_lab.kubelet.devices import checkpoint
from pumice_lab.kubelet.devices.manager import AllocationRefused, DeviceManager, PodDevices
from pumice_lab.kubelet.devices.plugin import Allocation, Device, Options, is_extended

MEMORY = "volcano.sh/vgpu-memory"


def pod(uid: str, *containers: dict[str, Any], inits: Iterable[dict[str, Any]] = ()) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid}, "spec": {"containers": list(containers), "initContainers": list(inits)}}


def box(name: str, number: int = 0, **more: Any) -> dict[str, Any]:
    limits = {NUMBER: number, **more.pop("limits", {})}
    return {"name": name, "resources": {"limits": limits}, **more}


def manager(seed: int = 0) -> DeviceManager:
    return DeviceManager(random.Random(seed))


def plugged(ids: Iterable[str], *, preferred: bool = False, seed: int = 0, **options: Any) -> tuple[DeviceManager, FakePlugin]:
    made, plugin = manager(seed), FakePlugin(**options)
    made.connected(NUMBER, plugin, Options(preferred=preferred))
    made.listed(NUMBER, devices(*ids))
    return made, plugin


def admit(made: DeviceManager, *pods: dict[str, Any], active: Iterable[str] = ()) -> None:
    """Admit in order; every pod named before counts as active, and ``active`` besides."""

    async def run() -> None:
        seen = set(active)
        for one in pods:
            await made.admit(one, lambda: seen)
            seen.add(one["metadata"]["uid"])

    asyncio.run(run())


def refused(made: DeviceManager, one: dict[str, Any], active: Iterable[str] = ()) -> str:
    with pytest.raises(AllocationRefused) as error:
        admit(made, one, active=active)
    return str(error.value)


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["volcano.sh/vgpu-number", "nvidia.com/gpu", "example.com/A_b.c", "x.y/" + "a" * 63])
def test_an_extended_resource_may_be_registered(name: str) -> None:
    assert is_extended(name)


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.x.y/gpu", "Nvidia.com/gpu",
                                  "x.y/" + "a" * 64, "x.y/", "/gpu", "x_y/gpu", ""])
def test_any_other_name_is_invalid(name: str) -> None:
    assert not is_extended(name)


# -- counting -----------------------------------------------------------------------------------------------------------


def test_capacity_counts_all_devices_and_allocatable_the_healthy_ones() -> None:
    made, _ = plugged([])
    made.listed(NUMBER, [Device("a"), Device("b", "Unhealthy"), Device("c", "Weird"), Device("d", "")])
    assert made.counts(0) == {NUMBER: (4, 1)}


def test_a_list_replaces_the_former_one_and_an_empty_list_is_none() -> None:
    made, _ = plugged("abc")
    made.listed(NUMBER, devices("x"))
    assert made.counts(0) == {NUMBER: (1, 1)}
    made.listed(NUMBER, [])
    assert made.counts(0) == {NUMBER: (0, 0)}


def test_one_id_twice_with_different_health_counts_in_both_sets() -> None:
    made, _ = plugged([])
    made.listed(NUMBER, [Device("a"), Device("a", "Unhealthy"), Device("b")])
    assert made.counts(0) == {NUMBER: (3, 2)}


def test_a_lost_plugin_leaves_capacity_for_300_seconds_and_then_zero() -> None:
    made, _ = plugged("abc")
    made.disconnected(NUMBER, now=1000.0)
    assert made.counts(1000.0) == {NUMBER: (3, 0)}
    assert made.counts(1300.0) == {NUMBER: (3, 0)}
    assert made.counts(1300.1) == {NUMBER: (0, 0)}


def test_the_end_of_an_old_plugins_stream_disconnects_the_new_one() -> None:
    made, old = plugged("ab")
    new = FakePlugin()
    made.connected(NUMBER, new, Options())
    made.listed(NUMBER, devices("a", "b", "c"))
    assert made.counts(0) == {NUMBER: (3, 3)}
    made.disconnected(NUMBER, now=5.0)  # the old one's stream
    assert new.closed
    assert not old.closed
    assert made.counts(5.0) == {NUMBER: (3, 0)}


def test_of_two_plugins_the_later_one_allocates_and_the_last_list_wins() -> None:
    made, old = plugged("ab")
    new = FakePlugin()
    made.connected(NUMBER, new, Options())
    made.listed(NUMBER, devices("x"))
    made.listed(NUMBER, devices("y"))  # the old plugin's stream goes on
    admit(made, pod("p", box("c", 1)))
    assert (old.allocations(), new.allocations()) == ([], [{"y"}])


# -- choosing -----------------------------------------------------------------------------------------------------------


def test_ids_and_the_order_of_resources_are_random() -> None:
    orders, firsts = set(), set()
    for seed in range(30):
        made, order = manager(seed), list[str]()
        for resource in (NUMBER, MEMORY):
            made.connected(resource, FakePlugin(answer=_noted(order, resource)), Options())
            made.listed(resource, devices("a", "b", "c"))
        admit(made, pod("p", box("c", 1, limits={MEMORY: 1})))
        orders.add(tuple(order))
        firsts |= made.pod_devices.devices()[NUMBER]
    assert orders == {(NUMBER, MEMORY), (MEMORY, NUMBER)}
    assert firsts == {"a", "b", "c"}


def _noted(order: list[str], resource: str) -> Any:
    def answer(ids: list[str]) -> Allocation:
        order.append(resource)
        return Allocation()

    return answer


def test_the_preferred_ids_are_asked_for_even_when_there_is_no_choice() -> None:
    made, plugin = plugged("a", preferred=True, prefers=lambda available, must, size: available)
    admit(made, pod("p", box("c", 1)))
    assert plugin.calls == [("preferred", ["a"], [], 1), ("allocate", ["a"])]


def test_without_the_option_preferred_ids_are_not_asked_for() -> None:
    made, plugin = plugged("ab", prefers=lambda *_: ["a"])
    admit(made, pod("p", box("c", 1)))
    assert [call[0] for call in plugin.calls] == ["allocate"]


@pytest.mark.parametrize(("answer", "sure"), [
    (["b"], {"b"}),  # too few: random ones are added
    (["a", "b", "c"], set()),  # too many: some of them
    (["nosuch"], set()),
    ([], set()),
    (None, set()),
])  # fmt: skip
def test_an_odd_preference_is_made_to_fit(answer: list[str] | None, sure: set[str]) -> None:
    taken = set()
    for seed in range(20):
        made, plugin = plugged("abcd", preferred=True, seed=seed, prefers=lambda *_: answer)
        admit(made, pod("p", box("c", 2)))
        (ids,) = plugin.allocations()
        assert len(ids) == 2
        assert sure <= ids <= set("abcd")
        taken |= ids
    assert taken == (set("abc") if answer and len(answer) == 3 else set("abcd"))


def test_a_failed_preference_refuses_the_pod() -> None:
    made, plugin = plugged("ab", preferred=True)
    cause = refused(made, pod("p", box("c", 1)))
    assert cause == "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = no opinion"
    assert not plugin.allocations()


def test_init_containers_hand_their_devices_on() -> None:
    """i1 asks 2, i2 asks 1, the container asks 3 of 4."""
    made, plugin = plugged("abcd", preferred=True, prefers=lambda available, must, size: (must + available)[:size])
    admit(made, pod("p", box("app", 3), inits=[box("i1", 2), box("i2", 1)]))
    (_, ids1), (_, ids2), (_, ids3) = [(c[0], set(c[1])) for c in plugin.calls if c[0] == "allocate"]
    assert [call[0] for call in plugin.calls] == ["preferred", "allocate", "allocate", "preferred", "allocate"]
    assert (len(ids1), len(ids2), len(ids3)) == (2, 1, 3)
    assert ids2 < ids1 < ids3
    assert plugin.calls[3][2:] == (sorted(ids1), 3)


def test_a_sidecar_keeps_its_devices_to_itself() -> None:
    made, plugin = plugged("abc")
    admit(made, pod("p", box("app", 2), inits=[box("side", 1, restartPolicy="Always")]))
    side, app = plugin.allocations()
    assert not side & app


def test_each_container_gets_its_own_answer() -> None:
    made, plugin = plugged("abc")
    admit(made, pod("p", box("one", 1), box("none"), box("two", 2)))
    assert [len(ids) for ids in plugin.allocations()] == [1, 2]
    (one,), (two,) = made.answers("p", "one"), made.answers("p", "two")
    assert len(dict(one.envs)["IDS"].split(",")) == 1
    assert len(dict(two.envs)["IDS"].split(",")) == 2
    assert made.answers("p", "none") == []


# -- refusing -----------------------------------------------------------------------------------------------------------


def test_a_resource_that_was_never_known_is_no_reason_to_refuse() -> None:
    made = manager()
    admit(made, pod("p", box("c", 4)))
    assert made.pod_devices.pods == {}


def test_too_few_free_devices() -> None:
    made, _ = plugged("ab")
    admit(made, pod("first", box("c", 1)))
    assert refused(made, pod("p", box("c", 2)), ["first"]) == (
        f"requested number of devices unavailable for {NUMBER}. Requested: 2, Available: 1")


def test_none_healthy() -> None:
    made, _ = plugged([])
    made.listed(NUMBER, devices("a", health="Unhealthy"))
    assert refused(made, pod("p", box("c", 1))) == (
        f"no healthy devices present; cannot allocate unhealthy devices {NUMBER}")


def test_a_plugins_error_reaches_the_pod_word_for_word() -> None:
    made, plugin = plugged("ab")
    plugin.error = "rpc error: code = Internal desc = two\nlines"
    assert refused(made, pod("p", box("c", 1))) == plugin.error
    assert made.in_use == {}


def test_an_answer_without_containers_keeps_its_ids_until_the_next_allocation_error() -> None:
    made, plugin = plugged("ab", answer=lambda ids: None)
    assert refused(made, pod("p", box("c", 1))) == "no containers return in allocation response "
    assert refused(made, pod("q", box("c", 2))) == (
        f"requested number of devices unavailable for {NUMBER}. Requested: 2, Available: 1")
    plugin.error = "rpc error: code = Unknown desc = x"
    refused(made, pod("r", box("c", 1)))
    assert made.in_use == {}


def test_a_resource_forgotten_after_300_seconds_but_still_held_refuses() -> None:
    made, _ = plugged("ab")
    admit(made, pod("holder", box("c", 1)))
    made.disconnected(NUMBER, now=0.0)
    assert made.counts(301.0) == {NUMBER: (0, 0)}
    assert refused(made, pod("p", box("c", 1)), ["holder"]) == f"cannot allocate unregistered device {NUMBER}"
    admit(made, pod("free", box("c")))


# -- freeing ------------------------------------------------------------------------------------------------------------


def test_devices_of_an_ended_pod_are_freed_at_the_next_device_admission() -> None:
    made, _ = plugged("a")
    admit(made, pod("first", box("c", 1)))
    admit(made, pod("no-devices", box("c")))
    assert made.in_use[NUMBER] == {"a"}
    admit(made, pod("second", box("c", 1)))
    assert list(made.pod_devices.pods) == ["second"]


def test_after_a_second_containers_failure_the_first_ones_ids_linger_until_the_next_admission() -> None:
    made, plugin = plugged("abc")

    def answer(ids: list[str]) -> Allocation:
        plugin.error = "rpc error: code = Unknown desc = second"
        return Allocation()

    plugin._answer = answer
    refused(made, pod("half", box("one", 1), box("two", 1)))
    assert list(made.pod_devices.pods) == ["half"]
    assert len(made.in_use[NUMBER]) == 1
    plugin.error = ""
    admit(made, pod("next", box("c", 3)))
    assert list(made.pod_devices.pods) == ["next"]


# -- after admission ----------------------------------------------------------------------------------------------------


def test_pre_start_is_called_only_with_the_option_and_only_for_devices() -> None:
    made, plugin = plugged("a")
    admit(made, pod("p", box("c", 1), box("d")))
    asyncio.run(made.pre_start("p", "c"))
    assert plugin.calls == [("allocate", ["a"])]
    made.connected(NUMBER, plugin, Options(pre_start=True))
    asyncio.run(made.pre_start("p", "c"))
    asyncio.run(made.pre_start("p", "d"))
    assert plugin.calls[1:] == [("pre_start", ["a"])]


def test_a_device_that_vanishes_keeps_its_last_health() -> None:
    made, _ = plugged("ab")
    admit(made, pod("p", box("c", 2)))
    assert made.health("p", "c") == [(NUMBER, [("a", "Healthy"), ("b", "Healthy")])]
    made.listed(NUMBER, [Device("a", "Unhealthy"), Device("b")])
    assert made.health("p", "c") == [(NUMBER, [("a", "Unhealthy"), ("b", "Healthy")])]
    made.listed(NUMBER, [])
    assert made.health("p", "c") == [(NUMBER, [("a", "Unhealthy"), ("b", "Healthy")])]


# -- the checkpoint -----------------------------------------------------------------------------------------------------


def _restarted(directory: Path) -> DeviceManager:
    made = manager()
    pod_devices, registered = checkpoint.load(directory)
    made.remember(pod_devices, registered, now=0.0)
    return made


def test_a_restart_keeps_who_holds_what_and_counts_nothing_until_the_plugin_is_back(tmp_path: Path) -> None:
    made, _ = plugged("abc")
    made.save = lambda pod_devices, registered: checkpoint.save(tmp_path, pod_devices, registered)
    admit(made, pod("p", box("c", 2)))
    held = made.pod_devices.get("p", "c", NUMBER)
    assert held is not None
    again = _restarted(tmp_path)
    assert again.counts(0.0) == {NUMBER: (0, 0)}
    assert again.in_use == {NUMBER: set(held.ids)}
    assert refused(again, pod("q", box("c", 1)), ["p"]) == (
        f"no healthy devices present; cannot allocate unhealthy devices {NUMBER}")
    plugin = FakePlugin()
    again.connected(NUMBER, plugin, Options())
    again.listed(NUMBER, devices(*"abc"))
    admit(again, pod("q", box("c", 1)), active=["p"])
    assert plugin.allocations() == [set("abc") - held.ids]


def test_the_checkpoint_has_the_kubelets_layout(tmp_path: Path) -> None:
    made, _ = plugged([])
    made.listed(NUMBER, [Device("a", numa=(1,)), Device("b")])
    made.save = lambda pod_devices, registered: checkpoint.save(tmp_path, pod_devices, registered)
    admit(made, pod("p", box("c", 2)))
    content = json.loads((tmp_path / "kubelet_internal_checkpoint").read_text())
    assert set(content) == {"Data", "Checksum"}
    (entry,) = content["Data"]["PodDeviceEntries"]
    assert (entry["PodUID"], entry["ContainerName"], entry["ResourceName"]) == ("p", "c", NUMBER)
    assert entry["DeviceIDs"] == {"-1": ["b"], "1": ["a"]}
    assert content["Data"]["RegisteredDevices"] == {NUMBER: ["a", "b"]}


@pytest.mark.parametrize("damage", [lambda text: text.replace('"Checksum": ', '"Checksum": 1'), lambda text: text[:50],
                                    lambda text: "[]"])
def test_a_damaged_checkpoint_means_empty_books(tmp_path: Path, damage: Any) -> None:
    made, _ = plugged("a")
    made.save = lambda pod_devices, registered: checkpoint.save(tmp_path, pod_devices, registered)
    admit(made, pod("p", box("c", 1)))
    path = tmp_path / "kubelet_internal_checkpoint"
    path.write_text(damage(path.read_text()))
    assert checkpoint.load(tmp_path) == (PodDevices(), [])
