"""Each defect of upstream that the specification lists (D-01 to D-46), shown to be absent. One test per number.

The worked examples beside this file show most of them in numbers; here each has a name to look for.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.kit.device_world import A100, TinyLedger, card, limits, pod_of, vgpu_node

from pumice.apps.scheduler_metrics import SchedulerMetrics
from pumice.engine.effects import Bind, PodCondition
from pumice.engine.engine import Engine
from pumice.engine.ledger import Hold
from pumice.engine.state import State
from pumice.families.nvidia_gpushare import NvidiaGpushare
from pumice.families.nvidia_vgpu import NvidiaVgpu
from pumice.families.registry import families_for
from pumice.families.seam import Ask, Fit
from pumice.families.settings import Settings, settings_from
from pumice.model.refusal import BadInput, Misfit, Refusal
from pumice.wire import names, volcano
from pumice.wire.device_config import parse_device_config
from pumice.wire.node_lock import LockView, may_release, may_take, parse_lock, render_lock
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

VGPU = {"deviceshare.VGPUEnable": True, "deviceshare.SchedulePolicy": "binpack"}


def conf(arguments: dict[str, Any] | None = None, plugins: tuple[str, ...] = ("predicates",)) -> str:
    lines = ['actions: "enqueue, allocate, backfill"', "tiers:", "- plugins:"]
    lines += [f"  - name: {name}" for name in ("gang", *plugins)]
    lines += ["  - name: deviceshare", "    arguments:"]
    return "\n".join([*lines, *(f"      {key}: {value!r}".replace("True", "true") for key, value in (arguments or VGPU).items())])


def engine(*nodes: Node, text: str | None = None) -> Engine:
    made = Engine(parse_scheduler_conf(text or conf()), None, State())
    made.state.put_queue(convert(Queue, volcano.default_queue("default", reclaimable=True)))
    for node in nodes:
        node.status.allocatable |= {"pods": 110}
        made.state.put_node(node)
    return made


def pending(name: str, *containers: dict[str, Any], **more: Any) -> Pod:
    pod = pod_of(name, *containers, **more)
    pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
    return pod


def bound(name: str, ids: str, node: str = "n1", written_for: str = "", **more: Any) -> Pod:
    pod = pod_of(name, limits(1, 1000), node=node, **more)
    pod.metadata.annotations |= {names.VGPU_IDS: ids, names.VGPU_NODE: written_for or node}
    pod.spec.scheduler_name, pod.status.phase = "volcano", "Running"
    return pod


def binds(made: Engine, now: float = 10.0) -> dict[str, str]:
    return {e.name: e.annotations[names.VGPU_IDS] for e in made.cycle(now).effects if isinstance(e, Bind)}


def used(made: Engine, node: str = "n1") -> list[tuple[int, int, int]]:
    return [(u.shares, u.memory, u.cores) for u in made.state.ledger.books["nvidia-vgpu"].nodes[node].usages]


def two_cards() -> Node:
    return vgpu_node("n1", card("GPU-aaa"), card("GPU-bbb"))


def ledger(node: Node, policy: str = "binpack", config: str = "", **settings: Any) -> TinyLedger:
    family = NvidiaVgpu(parse_device_config(config), Settings(vgpu=True, policy=policy, **settings))
    made = TinyLedger(family)
    made.add_node(node)
    return made


def mig_node() -> Node:
    return vgpu_node("n1", card("GPU-m1", 40960, 10, A100, mode="mig"))


def test_d01_deviceshare_alone_allocates_without_the_predicates_plugin() -> None:
    made = engine(two_cards(), text=conf(plugins=()))
    made.state.put_pod(pending("p", limits(1, 1000)))
    assert binds(made) == {"p": "GPU-aaa,NVIDIA,1000,0:"}


def test_d02_a_changed_configuration_takes_effect_and_a_removed_flag_is_off() -> None:
    made = engine(two_cards())
    made.configure(parse_scheduler_conf(conf({"deviceshare.SchedulePolicy": "spread"})))
    assert made.families == []
    made.configure(parse_scheduler_conf(conf({**VGPU, "deviceshare.SchedulePolicy": "spread"})))
    for name in ("a", "b"):
        made.state.put_pod(pending(name, limits(1, 1000)))
    assert binds(made) == {"a": "GPU-aaa,NVIDIA,1000,0:", "b": "GPU-bbb,NVIDIA,1000,0:"}


def test_d03_an_unreadable_configuration_is_an_error_with_line_and_key() -> None:
    with pytest.raises(BadInput, match=r"line 2: nvidia.defaultMemory: expected a whole number"):
        parse_device_config("nvidia:\n  defaultMemory: much\n")


def test_d04_a_partial_configmap_keeps_the_defaults() -> None:
    assert parse_device_config("vnpus: []\n").nvidia.resource_count_name == names.VGPU_NUMBER
    partial = parse_device_config("nvidia:\n  deviceSplitCount: 4\n").nvidia
    assert (partial.device_split_count, partial.resource_memory_name) == (4, names.VGPU_MEMORY)


def test_d05_defaults_for_what_the_pod_leaves_out_are_honoured() -> None:
    made = ledger(two_cards(), config="nvidia: {defaultMemory: 2000, defaultCores: 30, defaultGPUNum: 2}")
    pod, by_memory = pod_of("p", limits(1)), pod_of("q", limits(None, 500, 10))
    made.place(pod, "n1")
    assert made.ids(pod) == "GPU-aaa,NVIDIA,2000,30:"
    made.place(by_memory, "n1")
    assert made.ids(by_memory) == "GPU-aaa,NVIDIA,500,10:GPU-bbb,NVIDIA,500,10:"


def test_d06_a_node_counts_by_the_configured_resource_names() -> None:
    config = "nvidia: {resourceCountName: my.io/n, resourceMemoryName: my.io/m, resourceCoreName: my.io/c}"
    node = vgpu_node("n1", card("GPU-a"), allocatable={"my.io/n": 1, "my.io/m": 1, "my.io/c": 1})
    made = ledger(node, config=config)
    assert isinstance(made.try_pod(pod_of("p", {"my.io/n": 1, "my.io/m": 100}), "n1"), Fit)


def test_d07_group_names_that_give_ambiguous_ids_are_refused_and_decoded_at_the_last_hyphen() -> None:
    text = "nvidia: {knownMigGeometries: [{models: [A100], allowedGeometries: [{group: group-1, geometries: []}]}]}"
    with pytest.raises(BadInput, match="group-1"):
        parse_device_config(text)


def test_d08_numbers_written_as_text_are_numbers() -> None:
    settings = settings_from({"deviceshare.ScheduleWeight": "10"})
    assert isinstance(settings, Settings)
    assert (settings.weight, settings.warnings) == (10, ())


def test_d09_stray_separators_leave_no_gap_in_the_card_numbers() -> None:
    node = vgpu_node("n1", card("GPU-a"), ":", card("GPU-b"))
    for policy in ("", "binpack", "spread"):
        made = ledger(node, policy)
        assert [c.index for c in made.inventories["n1"].cards] == [0, 1]
        assert isinstance(made.try_pod(pod_of("p", limits(2, 100)), "n1"), Fit)


def test_d10_a_node_without_cards_refuses_a_pod_that_wants_some() -> None:
    plain = convert(Node, {"metadata": {"name": "n0"}, "status": {"allocatable": {names.VGPU_NUMBER: 10}}})
    made = engine(plain)
    made.state.put_pod(pending("p", limits(1, 1000)))
    assert binds(made) == {}


def test_d11_each_card_has_its_own_mode() -> None:
    node = vgpu_node("n1", card("GPU-m", 40960, 10, A100, mode="mig"), card("GPU-h", 40960, 10, A100))
    made = ledger(node)
    for mode, expected in (("mig", "GPU-m[group1-0],NVIDIA,3000,0:"), ("hami-core", "GPU-h,NVIDIA,3000,0:")):
        pod = pod_of(mode, limits(1, 3000), annotations={names.VGPU_MODE: mode})
        made.place(pod, "n1")
        assert made.ids(pod) == expected


def test_d12_a_mig_card_of_an_unknown_model_is_unusable_and_says_which_model() -> None:
    node = vgpu_node("n1", card("GPU-x", 40960, 10, "NVIDIA-NVIDIA Z900", mode="mig"))
    made = ledger(node)
    assert "node n1: no MIG geometry for model 'NVIDIA-NVIDIA Z900'" in made.inventories["n1"].problems[0]
    assert isinstance(made.try_pod(pod_of("p", limits(1, 3000)), "n1"), Misfit)


def test_d13_an_unhealthy_card_takes_no_new_pods_and_keeps_the_old_ones() -> None:
    made = ledger(vgpu_node("n1", card("GPU-a", healthy=False), card("GPU-b")))
    made.replay(bound("old", "GPU-a,NVIDIA,1000,0:"), "n1")
    fit = made.try_pod(pod_of("p", limits(1, 100)), "n1")
    assert isinstance(fit, Fit)
    assert fit.grant.pieces[0].uuid == "GPU-b"
    assert made.used("n1")[0] == (1, 1000, 0)


def test_d14_empty_items_of_type_lists_are_dropped() -> None:
    for notes in ({names.NOUSE_GPU_TYPE: "A100,"}, {names.NOUSE_GPU_TYPE: " , "}, {names.USE_GPU_TYPE: ""}):
        assert isinstance(ledger(two_cards()).try_pod(pod_of("p", limits(1, 100), annotations=notes), "n1"), Fit)


def test_d15_a_binding_carries_only_the_keys_of_this_feature() -> None:
    made = engine(two_cards())
    made.state.put_pod(pending("p", limits(1, 100), annotations={"mine": "1"}))
    bind = next(e for e in made.cycle(10.0).effects if isinstance(e, Bind))
    six = {names.VGPU_NODE, names.VGPU_TIME, names.VGPU_IDS, names.DEVICES_TO_ALLOCATE, names.BIND_PHASE, names.BIND_TIME}
    assert set(bind.annotations) == six


def test_d16_a_uuid_that_begins_another_is_not_taken_for_it() -> None:
    made = ledger(vgpu_node("n1", card("GPU-1"), card("GPU-10")))
    made.replay(bound("p", "GPU-10,NVIDIA,1000,0:"), "n1")
    assert made.used("n1") == [(0, 0, 0), (1, 1000, 0)]


def test_d17_cores_alone_count_only_by_option() -> None:
    pod = pod_of("p", limits(cores=30))
    assert ledger(two_cards()).family.ask(pod) is None
    assert isinstance(ledger(two_cards(), partial_requests=True).family.ask(pod), Ask)


@pytest.mark.parametrize("memory", ["3Gi", "4Gi", 2**31, 2**63, -1])
def test_d18_amounts_beyond_31_bits_are_refused_with_the_reason(memory: str | int) -> None:
    refused = ledger(two_cards()).family.ask(pod_of("p", limits(1, memory)))
    assert isinstance(refused, Refusal)
    assert str(memory) in refused.text


def test_d19_a_count_of_zero_is_no_request() -> None:
    assert ledger(two_cards()).family.ask(pod_of("p", limits(0, 4096, 50))) is None


def test_d20_two_pods_of_one_cycle_get_two_slots() -> None:
    made = engine(mig_node())
    for name in ("a", "b"):
        made.state.put_pod(pending(name, limits(1, 3000), limits(1, 3000)))
    slots = "".join(binds(made).values())
    assert sorted(part.split("]")[0] for part in slots.split("[")[1:]) == [f"group1-{i}" for i in range(4)]


def test_d21_every_container_of_a_replayed_pod_is_charged() -> None:
    made = ledger(two_cards())
    made.replay(bound("p", "GPU-aaa,NVIDIA,4096,25:;GPU-aaa,NVIDIA,2048,10:"), "n1")
    assert made.used("n1")[0] == (2, 6144, 35)


def test_d22_an_emptied_card_is_free_for_another_group() -> None:
    made = engine(mig_node())
    old = bound("old", "GPU-m1[group1-2],NVIDIA,3000,0:")
    made.state.put_pod(old)
    made.state.put_pod(pending("p", limits(1, 20000)))
    assert binds(made) == {}
    made.state.drop_pod(old)
    assert binds(made, 20.0) == {"p": "GPU-m1[group3-0],NVIDIA,20000,0:"}


def test_d23_all_free_profiles_of_the_active_group_count() -> None:
    made = ledger(mig_node())
    made.replay(bound("old", "GPU-m1[group2-0],NVIDIA,8000,0:"), "n1")
    pod = pod_of("p", limits(1, 3000))
    made.place(pod, "n1")
    assert made.ids(pod) == "GPU-m1[group2-3],NVIDIA,3000,0:"


def test_d24_a_whole_card_in_mig_mode_is_its_largest_slot() -> None:
    made = ledger(vgpu_node("n1", card("GPU-m", 81920, 10, "NVIDIA-NVIDIA A100-SXM4-80GB", mode="mig")))
    pod = pod_of("p", limits(1))
    made.place(pod, "n1")
    assert made.ids(pod) == "GPU-m[group4-0],NVIDIA,80896,0:"


def test_d25_a_slot_that_the_geometry_lost_quarantines_one_card() -> None:
    node = vgpu_node("n1", *(card(f"GPU-m{i}", 40960, 10, A100, mode="mig") for i in range(2)))
    made = engine(node)
    old = bound("old", "GPU-m0[group4-3],NVIDIA,3000,0:")
    made.state.put_pod(old)
    made.state.put_pod(pending("p", limits(1, 3000)))
    assert binds(made) == {"p": "GPU-m1[group1-0],NVIDIA,3000,0:"}
    made.state.drop_pod(old)
    made.state.put_pod(pending("q", limits(1)))
    assert binds(made, 20.0) == {"q": "GPU-m0[group4-0],NVIDIA,40960,0:"}


def test_d26_spread_prefers_the_node_with_the_idle_card() -> None:
    made = engine(*(vgpu_node(n, card(f"GPU-{n}")) for n in ("n1", "n2")),
                  text=conf({**VGPU, "deviceshare.SchedulePolicy": "spread"}))  # fmt: skip
    for name in ("a", "b"):
        made.state.put_pod(pending(name, limits(1, 1000)))
    assert sorted(ids.split(",")[0] for ids in binds(made).values()) == ["GPU-n1", "GPU-n2"]


def test_d27_pods_without_cards_say_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made = engine(two_cards())
    plain = pod_of("plain", {"cpu": 1}, node="n1")
    plain.status.phase = "Running"
    made.state.put_pod(plain)
    made.cycle(10.0)
    assert (caplog.records, made.state.problems) == ([], {})


def test_d28_a_terminating_pod_keeps_its_card() -> None:
    made = engine(two_cards())
    going = bound("old", "GPU-aaa,NVIDIA,16384,0:")
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    made.state.put_pod(going)
    made.state.put_pod(pending("p", limits(1)))
    assert binds(made) == {"p": "GPU-bbb,NVIDIA,16384,0:"}


def test_d29_a_failed_allocation_charges_nothing() -> None:
    made = engine(mig_node())
    made.state.put_pod(pending("p", limits(1, 3000, 10), limits(1, 40000, 10)))
    assert binds(made) == {}
    assert used(made) == [(0, 0, 0)]


def test_d30_a_pod_whose_binding_is_on_its_way_holds_its_cards() -> None:
    made = engine(two_cards())
    made.state.put_pod(pending("a", limits(1)))
    assert binds(made) == {"a": "GPU-aaa,NVIDIA,16384,0:"}
    made.state.put_pod(pending("b", limits(1)))
    assert binds(made, 11.0) == {"b": "GPU-bbb,NVIDIA,16384,0:"}
    assert made.state.ledger.holdings["uid-a"].state is Hold.ASSUMED


def test_d31_a_refused_binding_gives_everything_back() -> None:
    made = engine(two_cards())
    made.state.put_pod(pending("a", limits(1, 3000, 20)))
    binds(made)
    made.bind_failed("uid-a", 11.0)
    assert used(made) == [(0, 0, 0), (0, 0, 0)]


def test_d32_taking_an_eviction_back_restores_and_nothing_else() -> None:
    made = engine(two_cards())
    made.state.put_pod(bound("old", "GPU-aaa,NVIDIA,8000,50:"))
    before = made.state.ledger.fingerprint()
    receipt = made.state.ledger.terminate("uid-old")
    assert receipt is not None
    made.state.ledger.undo(receipt)
    assert made.state.ledger.fingerprint() == before
    assert used(made)[0] == (1, 8000, 50)


def test_d33_a_promise_on_what_is_being_released_writes_nothing() -> None:
    made = engine(vgpu_node("n1", card("GPU-aaa")))
    going = bound("old", "GPU-aaa,NVIDIA,16384,0:")
    going.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    made.state.put_pod(going)
    made.state.put_pod(pending("p", limits(1)))
    assert binds(made) == {}
    assert made.state.ledger.pipelined == {}


def test_d34_what_eviction_cannot_help_is_final() -> None:
    misfit = ledger(two_cards()).try_pod(pod_of("p", limits(1, 100), annotations={names.VGPU_MODE: "mig"}), "n1")
    assert isinstance(misfit, Misfit)
    assert misfit.final


def test_d35_an_unreadable_lock_expires_and_nobody_removes_a_lock_that_is_not_theirs() -> None:
    now = 1_000_000.0
    assert not may_take(LockView("rubbish", now - 10), now)
    assert may_take(LockView("rubbish", now - 301), now)
    assert may_take(LockView(render_lock(now - 1200), now), now)
    assert not may_take(LockView(render_lock(now - 299), now), now)
    assert not may_take(LockView(render_lock(now + 1200), now), now)
    assert parse_lock("2026-08-20T10:07:21+08:00_pod-a") == parse_lock("2026-08-20T02:07:21Z")
    assert may_release(render_lock(now), render_lock(now))
    assert not may_release(render_lock(now + 5), render_lock(now))


def test_d36_two_pods_of_a_gang_on_one_node_are_decided_in_one_cycle() -> None:
    made = engine(two_cards(), text=conf({**VGPU, "deviceshare.NodeLockEnable": True}))
    for name in ("a", "b"):
        made.state.put_pod(pending(name, limits(1, 1000)))
    assert sorted(binds(made)) == ["a", "b"]


def test_d37_values_of_exclusivity_rules_are_compared_as_text() -> None:
    found = settings_from({**VGPU, "deviceshare.GPUExclusiveRules": [{"app": "x", "solo": True, "tier": 1}]})
    assert isinstance(found, Settings)
    assert found.rules == ((("app", "x"), ("solo", "true"), ("tier", "1")),)


def test_d38_exclusivity_respects_pods_in_flight_and_looks_at_the_same_rule_only() -> None:
    rules = {**VGPU, "deviceshare.GPUExclusiveRules": [{"app": "a"}, {"app": "b"}]}
    text = conf(VGPU) + "\n      deviceshare.GPUExclusiveRules: [{app: a}, {app: b}]"
    assert not isinstance(families_for(rules), Refusal)
    made = engine(two_cards(), text=text)
    for name, label in (("1", "a"), ("2", "a"), ("3", "b"), ("4", "b"), ("5", "a")):
        made.state.put_pod(pending(name, limits(1, 1000), labels={"app": label}))
    cards = {name: ids.split(",")[0] for name, ids in binds(made).items()}
    assert {cards["1"], cards["2"]} == {"GPU-aaa", "GPU-bbb"} == {cards["3"], cards["4"]}
    assert "5" not in cards


def test_d39_the_quota_counts_every_card() -> None:
    family = ledger(two_cards()).family
    ask = family.ask(pod_of("p", limits(2, 3000, 50)))
    assert isinstance(ask, Ask)
    assert family.quota(ask) == {names.VGPU_NUMBER: 2, names.VGPU_MEMORY: 6000, names.VGPU_CORES: 100}


def test_d40_a_percentage_is_a_parameter_and_not_a_resource_of_the_node() -> None:
    made = engine(two_cards())
    made.state.put_pod(pending("p", limits(1, percent=25)))
    assert binds(made) == {"p": "GPU-aaa,NVIDIA,4096,0:"}


def test_d41_sidecars_count_beside_the_containers() -> None:
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {names.GPU_MEMORY: 2}}}
    ask = NvidiaGpushare().ask(pod_of("p", {names.GPU_MEMORY: 3}, init=[sidecar, {names.GPU_MEMORY: 1}]))
    assert isinstance(ask, Ask)
    assert ask.detail.amount == 5


def test_d42_whole_cards_are_the_lowest_numbers() -> None:
    capacity = {names.GPU_MEMORY: 8000, names.GPU_NUMBER: 4}
    made = TinyLedger(NvidiaGpushare(number=True))
    made.add_node(convert(Node, {"metadata": {"name": "n1"}, "status": {"capacity": capacity}}))
    pods = [pod_of(name, {names.GPU_NUMBER: 2}) for name in "ab"]
    for pod in pods:
        made.place(pod, "n1")
    assert [made.ids(pod) for pod in pods] == ["0,1", "2,3"]


def test_d43_pods_of_one_name_in_two_namespaces_share_upstreams_series_and_have_their_own_in_ours() -> None:
    made = engine(two_cards())
    for namespace, memory in (("x", 1000), ("y", 2000)):
        pod = bound("p", f"GPU-aaa,NVIDIA,{memory},10:", namespace=namespace)
        pod.metadata.uid = f"uid-{namespace}"
        made.state.put_pod(pod)
    page = SchedulerMetrics(made).page().decode()
    name = "volcano_vgpu_device_memory_allocation_for_a_certain_pod"
    assert f'{name}{{devID="GPU-aaa",NodeName="n1",podName="p"}} 3000' in page
    assert 'pumice_vgpu_device_pod_memory{devID="GPU-aaa",NodeName="n1",podNamespace="y",podName="p"} 2000' in page
    series = [line.rsplit(" ", 1)[0] for line in page.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


def test_d44_a_scrape_shows_the_ledger_and_nothing_of_what_is_gone() -> None:
    made = engine(two_cards())
    metrics = SchedulerMetrics(made)
    pod = bound("p", "GPU-aaa,NVIDIA,1000,10:")
    made.state.put_pod(pod)
    assert 'volcano_vgpu_device_allocated_memory{devID="GPU-aaa",NodeName="n1"} 1000' in metrics.page().decode()
    made.cycle(10.0)
    assert 'volcano_vgpu_device_allocated_memory{devID="GPU-aaa",NodeName="n1"} 1000' in metrics.page().decode()
    made.state.drop_pod(pod)
    page = metrics.page().decode()
    assert 'volcano_vgpu_device_allocated_memory{devID="GPU-aaa",NodeName="n1"} 0' in page
    assert 'podName="p"' not in page
    made.state.drop_node("n1")
    assert "GPU-aaa" not in metrics.page().decode()


def test_every_defect_of_the_specification_has_its_test() -> None:
    named = {name[5:8] for name in globals() if name.startswith("test_d") and name[6:8].isdigit()}
    assert named == {f"d{number:02}" for number in range(1, 47)}


def test_d45_the_reason_carries_the_cause_and_keeps_its_first_word() -> None:
    made = engine(two_cards())
    made.state.put_pod(pending("p", limits(1, 20000)))
    message = next(e.message for e in made.cycle(10.0).effects if isinstance(e, PodCondition))
    assert "1 hami-vgpuDeviceSharing: memory 2 of 2 cards" in message


def test_d46_annotations_of_a_pod_that_is_not_on_the_node_are_ignored() -> None:
    made = ledger(two_cards())
    stale = bound("p", "GPU-aaa,NVIDIA,8000,0:", written_for="n9")
    assert made.replay(stale, "n1") is None
    waiting = pending("q", limits(1, 1000), annotations={names.VGPU_IDS: "GPU-aaa,NVIDIA,8000,0:"})
    assert made.replay(waiting, "n1") is None
