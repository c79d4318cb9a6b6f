"""The amounts of the guides' examples, written in a unit that is not meant: each gets a sentence that says what to write."""

from __future__ import annotations

import pytest
from kit.engine_world import World
from kit.objects import node, pod
from kit.scheduler_confs import conf, sharing

from pumice.devices.lint import lint_files
from pumice.scheduler.explaining.explain import explain
from pumice.wire import names
from pumice.wire.objects import Pod, convert

LEGACY = conf("gang", "predicates", sharing("GPUSharing"), actions="allocate")
# resource, what the guide writes, and how people write it when they think of bytes
WRITTEN = [
    (names.VGPU_MEMORY, 3000, ("3000Mi", "3000MiB", "3000 MB", "3145728000", "3,000")),
    (names.VGPU_MEMORY, 3072, ("3Gi", "3GiB", "3 GB", "3gb", "3g", "3221225472", "3145728")),
    (names.GPU_MEMORY, 1024, ("1024Mi", "1Gi", "1 GB", "1024MB", "1GiB", "1073741824")),
]
CASES = [(resource, right, wrong) for resource, right, ways in WRITTEN for wrong in ways]
MANIFEST = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - resources:\n      limits:\n        %s: %s\n"


def world_of(resource: str) -> World:
    if resource == names.VGPU_MEMORY:
        world = World()
        world.add(node("n1", cards=2, mib=16384))
        return world
    world = World(LEGACY)
    world.add(node("n1", extra={names.GPU_MEMORY: "32768", names.GPU_NUMBER: "2"}))
    return world


@pytest.mark.parametrize(("resource", "right", "wrong"), CASES)
def test_explain_says_what_to_write(resource: str, right: int, wrong: str) -> None:
    world = world_of(resource)
    found = explain(world.engine, convert(Pod, pod("p", limits={resource: wrong})), now=world.now)
    assert found.node == ""
    units = [change for change in found.changes if change.kind == "unit"]
    assert [change.text.split(";")[0].split(",")[0] for change in units] == [f"write {resource}: {right}"]
    assert "the unit is MiB" in units[0].text
    assert units[0].node == "n1"


@pytest.mark.parametrize(("resource", "right", "wrong"), CASES)
def test_lint_says_it_before_the_pod_is_there(resource: str, right: int, wrong: str) -> None:
    found = [finding for finding in lint_files({"p.yaml": MANIFEST % (resource, wrong)}) if finding.line == 8]
    assert len(found) == 1
    assert f"write {right}" in found[0].text


@pytest.mark.parametrize(("resource", "right"), [(resource, right) for resource, right, _ in WRITTEN])
def test_what_the_guides_write_fits(resource: str, right: int) -> None:
    world = world_of(resource)
    assert explain(world.engine, convert(Pod, pod("p", limits={resource: str(right)})), now=world.now).node == "n1"
