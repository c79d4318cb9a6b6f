"""Whatever is read and has no effect yet says so: each row of the table is met where a user would meet it."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.engine_world import ALL_PLUGINS, World
from kit.faulty_cluster import faulty_cluster
from kit.objects import group, node, pod, queue
from kit.scheduler_confs import conf
from kit.scheduler_daemon import daemon
from kit.virtual_time import VirtualClock, run_virtually

from pumice.apps.scheduler.daemon import Settings
from pumice.cli import main as cli
from pumice.cli.upstream_flags import unkept
from pumice.devices.lint import lint_files
from pumice.model.errors import BadInput
from pumice.scheduler.cycle.actions import ACTIONS
from pumice.scheduler.plugins.registry import PLUGINS
from pumice.wire import kinds, names, volcano
from pumice.wire import scheduler_conf as grammar
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.kinds import CRDS
from pumice.wire.names import CONTROLLER_NAME
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.without_effect import ROWS, Row, Shown, What, page
from pumice_jobs.apps.controller import daemon as controller

PAGE = Path(__file__).parents[2] / "docs/reference/without-effect.md"
WANTED: Mapping[str, str] = {
    "SchedulingGatesQueueAdmission": "true", "controllers": "-sharding-controller",
}  # fmt: skip


def reported(*ways: Shown) -> list[Row]:
    return [row for row in ROWS if row.reported in ways]


def ids(rows: list[Row]) -> list[str]:
    return [f"{row.what.value} {row.name}" for row in rows]


# -- the configuration ------------------------------------------------------------------------------------------------


def configuration(row: Row) -> str:
    """A configuration that promises what the row is about."""
    value: dict[str, Any] = {"actions": "enqueue, allocate, backfill", "tiers": [{"plugins": [{"name": "gang"}]}]}
    plugins = value["tiers"][0]["plugins"]
    match row.what:
        case What.ACTION:
            value["actions"] += f", {row.name}"
        case What.PLUGIN:
            plugins.append({"name": row.name})
        case What.ARGUMENT:
            owner = next(name for name, keys in grammar.PLUGIN_ARGUMENTS.items() if row.name in keys)
            plugins.append({"name": owner, "arguments": {row.name: row.asks(True)}})
        case What.KEY:
            entry = {"name": "allocate", "arguments": {"predicateErrorCacheEnable": False}}
            value[row.name] = {"metrics": {"type": "prometheus"}, "configurations": [entry]}[row.name]
    return str(yaml.safe_dump(value, sort_keys=False))


OF_DEVICES = [row for row in reported(Shown.WARNING) if row.what is What.DEVICES]
OF_THE_SCHEDULER = [row for row in reported(Shown.WARNING) if row.what is not What.DEVICES]


@pytest.mark.parametrize("row", OF_THE_SCHEDULER, ids=ids(OF_THE_SCHEDULER))
def test_a_configuration_that_promises_it_is_warned_of_at_its_line_found_by_lint_and_refused_under_strict(row: Row) -> None:
    text = configuration(row)
    assert any(row.text in warning and " line " in warning for warning in parse_scheduler_conf(text).warnings)
    assert any(finding.text == row.text and not finding.error for finding in lint_files({"a.conf": text}))
    with pytest.raises(BadInput, match="has no effect yet"):
        parse_scheduler_conf(text, strict=True)
    world = World(text)  # and it is a valid configuration all the same
    world.add(node("n1"), pod("a", cpu="1"))
    world.settle()
    assert world.node_of("a") == "n1"


NPU = """vnpus:
- {chipName: 310P3, commonWord: Ascend310P, resourceName: huawei.com/Ascend310P, memoryAllocatable: 21527,
   resourceMemoryName: huawei.com/Ascend310P-memory, %s}"""


@pytest.mark.parametrize("row", OF_DEVICES, ids=ids(OF_DEVICES))
def test_a_device_setting_that_promises_it_is_warned_of_at_its_line_found_by_lint_and_refused_under_strict(row: Row) -> None:
    owner, _, key = row.name.partition(".")

    def text(value: str) -> str:
        return f"nvidia:\n  {key}: {value}\n" if owner == "nvidia" else NPU % f"{key}: {value}"

    requested, unasked = ("true", "false") if key == "overwriteEnv" else ("named", '""')
    line = 2 if owner == "nvidia" else 3
    assert parse_device_config(text(requested)).warnings == (f"line {line}: {row.text}",)
    assert parse_device_config(text(unasked)).warnings == ()
    assert any(
        finding.text == row.text and finding.line == line
        for finding in lint_files({"device-config.yaml": text(requested)})
    )

    async def story() -> None:
        async with daemon(node("n1"), conf=conf("deviceshare"), settings=Settings(strict=True)) as running:
            body = {"metadata": {"name": names.DEVICE_CONFIGMAP}, "data": {names.DEVICE_CONFIG_KEY: text(requested)}}
            await running.cluster.create(kinds.CONFIGMAPS, body, "kube-system")
            await running.clock.sleep(2)
            (said,) = await running.events("ConfigurationRefused")
            assert f"{row.text} (strict)" in said

    run_virtually(story())


def test_every_name_of_the_grammar_has_an_effect_or_a_row() -> None:
    rows = {(row.what, row.name) for row in ROWS}
    assert {name for name in grammar.ACTIONS if (What.ACTION, name) not in rows} == set(ACTIONS)
    assert {name for name in grammar.PLUGIN_ARGUMENTS if (What.PLUGIN, name) not in rows} == set(PLUGINS)


def test_the_daemon_says_it_on_its_configmap() -> None:
    async def story() -> None:
        async with daemon(node("n1"), conf=conf("gang", "usage")) as running:
            await running.clock.sleep(2)
            (said,) = await running.events("ConfigurationWarning")
            assert "plugin usage has no effect yet: nodes take pods by what is requested there" in said

    run_virtually(story())


@pytest.mark.parametrize("row", reported(Shown.FLAG), ids=ids(reported(Shown.FLAG)))
def test_a_flag_or_gate_that_promises_it_is_warned_of(row: Row) -> None:
    values = [WANTED.get(row.name, ""), "true", "false"]
    value = next(value for value in values if row.asks(value))
    found = unkept("feature-gates", f"{row.name}={value}") if row.what is What.GATE else unkept(row.name, value)
    assert found == [row.text]


def test_flags_that_promise_nothing_else_than_what_is_done_are_silent() -> None:
    assert unkept("feature-gates", "PriorityClass=true,CSIStorage=true") == []
    assert unkept("kube-api-qps", "2000") == []
    (text,) = unkept("feature-gates", "PriorityClas=true")
    assert text == "feature gate 'PriorityClas' is not known; did you mean 'PriorityClass'?"


def test_under_strict_a_flag_without_effect_ends_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["scheduler", "--strict", "--feature-gates=ResourceTopology=true"])
    assert stopped.value.code == 2
    assert "feature gate ResourceTopology has no effect yet: no Numatopology is read (strict)" in capsys.readouterr().err


# -- objects ----------------------------------------------------------------------------------------------------------


def demanding(row: Row) -> dict[str, Any]:
    """An object that asks for what the row is about."""
    if row.what is What.POD:
        value = "restricted" if row.reported is Shown.WAITS else "best-effort"
        return pod("a", cpu="1", annotations={row.path[-1]: value})
    obj = queue("team")
    values = {"deserved": {"cpu": "4"}, "dequeueStrategy": "fifo",
              "extendClusters": [{"name": "far"}]}  # fmt: skip
    if row.path[0] == "metadata":
        obj["metadata"]["annotations"] = {row.path[-1]: "root/team"}
    else:
        obj["spec"][row.path[-1]] = values[row.path[-1]]
    return obj


OBJECTS = [row for row in ROWS if row.what in (What.POD, What.QUEUE)]


@pytest.mark.parametrize("row", OBJECTS, ids=ids(OBJECTS))
def test_an_object_that_asks_for_it_is_found_by_lint(row: Row) -> None:
    findings = lint_files({"a.yaml": yaml.safe_dump(demanding(row))})
    assert row.field_text in [finding.text for finding in findings]
    ordinary = {"Pod": pod("a", cpu="1"), "Queue": queue("team")}[demanding(row)["kind"]]
    assert lint_files({"a.yaml": yaml.safe_dump(ordinary)}) == []


@pytest.mark.parametrize("row", reported(Shown.WAITS), ids=ids(reported(Shown.WAITS)))
def test_a_pod_that_demands_it_is_never_bound_and_its_condition_names_it(row: Row) -> None:
    world = World()
    world.add(node("n1", cards=1), demanding(row), pod("plain", cpu="1"))
    world.settle(120)
    assert (world.node_of("a"), world.node_of("plain")) == ("", "n1")
    assert f"{row.name}: has no effect yet: {row.consequence}" in world.condition("a")["message"]
    again = demanding(row)
    again["spec"]["containers"][0]["resources"] = {}  # one that requests nothing is not placed either
    again["metadata"] |= {"name": "b", "uid": "b"}
    world.add(again)
    world.settle(120)
    assert row.name in world.condition("b")["message"]


TOLD_BY_EVENT = [row for row in OBJECTS if row.reported is Shown.EVENT]


@pytest.mark.parametrize("row", TOLD_BY_EVENT, ids=ids(TOLD_BY_EVENT))
def test_an_object_that_prefers_it_is_told_once_by_an_event(row: Row) -> None:
    async def story() -> None:
        async with daemon(node("n1")) as running:
            obj = demanding(row)
            obj["metadata"].pop("uid", None)
            body = {k: v for k, v in obj.items() if k != "status"}
            kind = kinds.PODS if obj["kind"] == "Pod" else volcano.QUEUES
            await running.cluster.create(kind, body, obj["metadata"].get("namespace", ""))
            await running.clock.sleep(30)
            (event,) = [e for e in (await running.cluster.list(kinds.EVENTS))["items"] if e["reason"] == "WithoutEffect"]
            assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (obj["kind"], obj["metadata"]["name"])
            assert event["message"] == row.field_text

    run_virtually(story())


KINDS = [row for row in ROWS if row.what is What.KIND]


@pytest.mark.parametrize("row", KINDS, ids=ids(KINDS))
def test_an_object_of_a_kind_that_nothing_serves_is_told_once_and_found_by_lint(row: Row) -> None:
    assert row.resource is not None
    kind = row.resource
    obj = {"apiVersion": f"{kind.group}/{kind.version}", "kind": row.name, "metadata": {"name": "one"}, "spec": {}}
    assert row.text in [finding.text for finding in lint_files({"a.yaml": yaml.safe_dump(obj)})]

    async def story() -> None:
        assert kind is not None
        clock = VirtualClock()
        cluster = await faulty_cluster(clock)
        names = {"kind": row.name, "listKind": f"{row.name}List", "plural": kind.plural, "singular": row.name.lower()}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema},
                   "subresources": {"status": {}}}  # fmt: skip
        scope = "Namespaced" if kind.namespaced else "Cluster"
        spec = {"group": kind.group, "names": names, "scope": scope, "versions": [version]}
        definition = {"metadata": {"name": f"{kind.plural}.{kind.group}"}, "spec": spec}
        if definition["metadata"]["name"] not in {one["metadata"]["name"] for one in (await cluster.list(CRDS))["items"]}:
            await cluster.create(CRDS, definition)
        await clock.sleep(1)
        stop = asyncio.Event()
        settings = controller.Settings(listen="127.0.0.1:0")
        running = asyncio.create_task(controller.run(settings, cluster=cluster, clock=clock, rng=random.Random(1), stop=stop))
        await cluster.create(kind, obj, "default" if kind.namespaced else "")
        await clock.sleep(100)
        patch = {"metadata": {"labels": {"a": "b"}}}
        await cluster.patch(kind, "one", patch, "default" if kind.namespaced else "")
        await clock.sleep(100)
        (event,) = (await cluster.list(kinds.EVENTS))["items"]
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == (row.name, "one")
        assert event["message"].startswith(row.text)
        assert event["source"]["component"] == CONTROLLER_NAME
        stop.set()
        await running

    run_virtually(story())


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_holds_the_table() -> None:
    assert PAGE.read_text("utf-8").endswith(page()), "it is rendered by pumice.wire.without_effect.page()"


@pytest.mark.parametrize(("what", "heading", "names"), [
    (What.ACTION, "Actions", grammar.ACTIONS), (What.PLUGIN, "Plugins", grammar.PLUGIN_ARGUMENTS),
])  # fmt: skip
def test_the_scheduler_page_names_every_action_and_plugin_and_whether_it_works(
    what: What, heading: str, names: Collection[str]
) -> None:
    """docs/reference/scheduler.md: whoever builds one writes there that it works."""
    section = PAGE.with_name("scheduler.md").read_text("utf-8").partition(f"## {heading}")[2].partition("## ")[0]
    reported = dict(re.findall(r"^\| `([a-z-]+)` \| (works|without effect) \| \S", section, re.MULTILINE))
    waiting = {row.name for row in ROWS if row.what is what}
    assert reported == {name: "without effect" if name in waiting else "works" for name in names}


def test_no_row_is_there_twice() -> None:
    assert len({(row.what, row.name, row.consequence) for row in ROWS}) == len(ROWS)


# -- capability and shares --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugins", [("gang", "predicates"), ("gang", "predicates", "capacity"), ("gang", "proportion")])
def test_a_queue_is_held_to_its_capability_whatever_plugin_is_configured(plugins: tuple[str, ...]) -> None:
    world = World(conf(*plugins))
    world.add(node("n1", cpu="16"), queue("team", capability={"cpu": "1"}))
    world.add(*[pod(f"p{i}", cpu="1", queue="team") for i in range(4)])
    world.settle()
    assert sum(bool(world.node_of(f"p{i}")) for i in range(4)) == 1
    words = {"queue team has no room left for it (cpu: 1 wanted, 1 of 1 in use)", "queue team is overused"}  # proportion's
    assert words & {world.condition(f"p{i}").get("message") for i in range(4)}


@pytest.mark.parametrize("plugins", [("gang", "predicates"), ("gang", "predicates", "capacity"), ("gang", "proportion")])
def test_the_children_of_a_queue_take_together_no_more_than_its_capability(plugins: tuple[str, ...]) -> None:
    world = World(conf(*plugins))
    world.add(node("n1", cpu="16"), queue("root"), queue("lab", capability={"cpu": "3"}))
    world.add(queue("left", parent="lab"), queue("right", parent="lab"))
    world.add(*[pod(f"{side}{i}", cpu="1", queue=side) for i in range(4) for side in ("left", "right")])
    world.settle()
    bound = [name for name in world.placements() if world.node_of(name)]
    assert len(bound) == 3
    waiting = next(name for name in world.placements() if not world.node_of(name))
    assert "(capability of queue lab, cpu: 1 wanted, 3 of 3 in use)" in world.condition(waiting)["message"]
    world.delete_pod(bound[0])
    world.settle(5)
    assert len([name for name in world.placements() if world.node_of(name)]) == 3


def test_a_gang_that_does_not_fit_under_its_parents_capability_takes_nothing_of_it() -> None:
    world = World(conf("gang", "predicates"))
    world.add(node("n1", cpu="16"), queue("root"), queue("lab", capability={"cpu": "3"}), queue("left", parent="lab"))
    world.add(group("big", minimum=4, queue="left"))
    world.add(*[pod(f"big{i}", cpu="1", group="big") for i in range(4)])
    world.settle()
    world.add(*[pod(f"small{i}", cpu="1", queue="left") for i in range(3)])
    world.settle()
    assert sorted(n for n in world.placements() if world.node_of(n)) == ["small0", "small1", "small2"]


NO_DEVICES = conf("gang", "predicates")


def test_a_pod_that_asks_for_a_share_that_the_configuration_does_not_give_is_never_bound_and_hears_of_the_switch() -> None:
    world = World(NO_DEVICES)
    world.add(node("n1", cards=2), pod("vgpu", mib=4000), pod("plain", cpu="1"))
    world.add(pod("legacy", limits={"volcano.sh/gpu-memory": 100}), pod("npu", limits={"huawei.com/npu-core": 4}))
    world.settle(120)
    assert {name: world.node_of(name) for name in ("vgpu", "plain", "legacy", "npu")} == {
        "vgpu": "", "plain": "n1", "legacy": "", "npu": ""}  # fmt: skip
    said = world.condition("vgpu")["message"]
    assert "volcano.sh/vgpu-number: the scheduler's configuration does not share it; deviceshare.VGPUEnable: true would" in said
    assert "deviceshare.GPUSharingEnable: true would" in world.condition("legacy")["message"]
    assert "deviceshare.AscendMindClusterVNPUEnable: true would" in world.condition("npu")["message"]
    world.engine.configure(parse_scheduler_conf(ALL_PLUGINS))
    world.settle(5)
    assert world.card_of("vgpu").startswith("n1/")


def test_a_pod_that_asks_by_a_name_of_the_configurations_own_avoids_the_nodes_that_share_it() -> None:
    world = World(NO_DEVICES)
    devices = parse_device_config("nvidia:\n  resourceCountName: nvidia.com/gpu\n")
    world.engine.configure(parse_scheduler_conf(NO_DEVICES), devices)
    world.add(node("shared", cards=2, extra={"nvidia.com/gpu": "20"}), pod("a", limits={"nvidia.com/gpu": 1}))
    world.settle()
    assert world.node_of("a") == ""
    assert "1 node(s) share nvidia.com/gpu, and the scheduler's configuration does not" in world.condition("a")["message"]
    world.add(node("whole", extra={"nvidia.com/gpu": "8"}))  # another plugin's, without our register
    world.settle()
    assert world.node_of("a") == "whole"
