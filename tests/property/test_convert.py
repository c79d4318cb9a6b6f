"""Converting what is converted changes nothing, loses nothing, and whatever a file holds the answer is a file or one sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pumice.devices.convert import convert
from pumice.model.errors import BadInput
from pumice.wire import hami_names, names
from pumice.wire.hami_names import To

RESOURCES = [*hami_names.RESOURCES, *hami_names.RESOURCES.values(), hami_names.PRIORITY, "cpu", "huawei.com/Ascend910B"]
NOTES = [*hami_names.ANNOTATIONS, *hami_names.ANNOTATIONS.values(), names.USE_GPU_TYPE, hami_names.NUMA_BIND, "hami.io/vgpu-node"]
VALUES = st.sampled_from(["binpack", "spread", "hami-core", "mps", "topology-aware", "GPU-1"])
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 99) | st.just("3Gi"), max_size=4)
containers = st.lists(
    st.fixed_dictionaries({"name": st.just("c")}, optional={
        "resources": st.fixed_dictionaries({"limits": amounts}), "image": st.sampled_from(["i", "projecthami/hami:v2"])}),
    max_size=3,
)  # fmt: skip
schedulers = st.sampled_from(["volcano", "hami-scheduler", "default-scheduler", "mine", "", None])
specs = st.fixed_dictionaries({}, optional={"schedulerName": schedulers, "containers": containers})
metadata = st.fixed_dictionaries({"annotations": st.dictionaries(st.sampled_from(NOTES), VALUES, max_size=3)})
pods = st.fixed_dictionaries({"kind": st.just("Pod")}, optional={"metadata": metadata, "spec": specs})
KEYS = ["memoryFactor", "gpuMemoryFactor", "resourceCountName", "runtimeClassName", "x"]
sections = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["nvidia.com/gpu", names.VGPU_NUMBER, "", "2"]), max_size=4)


def job(spec: Any, tasks: list[Any]) -> Any:
    listed = [{"template": {"spec": task}} for task in tasks]
    return {"kind": "Job", "apiVersion": "batch.volcano.sh/v1alpha1", "spec": {**spec, "tasks": listed}}


def devices(section: Any, style: Any) -> Any:
    data = {"device-config.yaml": style({"nvidia": section, "hygon": {}})}
    return {"kind": "ConfigMap", "metadata": {"name": "hami-scheduler-device", "namespace": "n"}, "data": data}


jobs = st.builds(job, specs, st.lists(specs, max_size=2))
maps = st.builds(devices, sections, st.sampled_from([yaml.safe_dump, json.dumps]))
documents = st.lists(pods | jobs | maps, max_size=3)
ways = st.sampled_from(list(To))


def converted(text: str, to: To, *, from_hami: bool = False) -> Any:
    """None where it is refused, True where that takes more than a line."""
    try:
        (found,) = convert({"f": text}, to, from_hami=from_hami)
    except BadInput as error:
        return "\n" in str(error) or None
    return found


def written(found: list[Any], *, flow: bool) -> str:
    return yaml.safe_dump_all(found, default_flow_style=flow, sort_keys=False)


@settings(max_examples=100)
@given(documents, ways, st.booleans(), st.booleans())
def test_what_is_converted_stays_as_it_is(found, to, flow, from_hami):
    once = converted(written(found, flow=flow), to, from_hami=from_hami)
    if once is not None:
        twice = converted(once.text, to, from_hami=from_hami)
        assert (twice.text, twice.changes) == (once.text, ())
        assert {left.name for left in twice.left} <= {left.name for left in once.left}


@settings(max_examples=100)
@given(documents, ways, st.booleans())
def test_nothing_is_lost_and_what_changed_is_told(found, to, flow):
    text = written(found, flow=flow)
    once = converted(text, to)
    if once is not None:
        before, after = list(yaml.safe_load_all(text)), list(yaml.safe_load_all(once.text))
        assert bool(once.changes) is (before != after)
        reported = sum(not change.before for change in once.changes)
        for change in once.changes:  # what HAMi's webhook makes a variable of, which has a name and a value
            reported += 0 if change.before != hami_names.PRIORITY else -1 if change.after == "nothing" else 1
        assert sum(map(leaves, after)) == sum(map(leaves, before)) + reported


def leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(leaves, value.values()))
    if isinstance(value, list):
        return sum(map(leaves, value))
    return leaves(yaml.safe_load(value)) if isinstance(value, str) and "nvidia:" in value.replace('"', "") else 1


PIECES = [
    "nvidia.com/gpumem: 1", "kind: ConfigMap", "data:", "  device-config.yaml: |", "    nvidia: {", "- ", "? ", "&a ", "*a",
    "<<: ", "<<: *a", ": |2\n", ": &a1 >\n",
    "!!python/object:os.system ", "!x ", "'", '"', "\t", "\x00", "\ufeff", "---\n", "spec:", "  containers: [", "{}", "]", "}",
    "schedulerName: hami-scheduler", ">-", "# c", "\n", "  ", "\r\n", "limits:", "%YAML 9", "2026-13-45", "0x", "~",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=25).map("".join), ways)
def test_hostile_yaml_is_answered_by_a_file_or_one_sentence(text, to):
    assert converted(text, to) is not True


LAUGHS = "l0: &l0 {containers: [x]}\n" + "".join(
    f"l{n}: &l{n} {{containers: [{', '.join([f'*l{n - 1}'] * 64)}]}}\n" for n in range(1, 12))  # fmt: skip
"""An alias of aliases: written out it would have 64 ** 11 parts."""


@pytest.mark.parametrize("text", [
    "&a [*a]", "&a {x: *a}", "[" * 900, "{a: " * 900, "- " * 900, "a: &a [1,1]\nb: &b [*a,*a]\nc: &c [*b,*b]\n" * 3,
    "\x00", "a: !!int x", "kind: ConfigMap\ndata: {device-config.yaml: '" + "[" * 900 + "'}", "? {nvidia.com/gpumem: 1}\n: 2",
    "kind: [ConfigMap]", "kind: ConfigMap\ndata: {device-config.yaml: 'nvidia: &a [*a]'}", "items: 3\nkind: List",
    "spec: {containers: [1, [], null]}", LAUGHS,
], ids=range(15))  # fmt: skip
def test_documents_without_end_or_sense_are_answered(text):
    assert all(converted(text, to) is not True for to in To)
