"""The chart is the manifests, and its values are what changes them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.installing import CHART, helm, key, refusal, rendered
from kit.manifests import manifest

from pumice.ports.cluster import Json

BY_DEFAULT = ["volcano.yml", "volcano-admission.yml", "volcano-vgpu-device-plugin.yml", "reserved-annotations.yml",
              "own-node.yml", "tenant-limits.yml", "tenant-void.yml"]  # fmt: skip
POLICIES = ["reserved-annotations.yml", "own-node.yml", "tenant-limits.yml", "tenant-void.yml"]

SWITCHES: list[tuple[Json, list[str]]] = [
    ({}, BY_DEFAULT),
    ({"custom": {"tenant_policies_enable": False}, "devicePlugin": {"mig": {"enabled": True}},
      "devices": {"ascend": {"enabled": True}}},
     [*(name for name in BY_DEFAULT if not name.startswith("tenant-")), "volcano-vgpu-device-plugin-mig.yml",
      "ascend-device-configmap.yml", "ascend-device-plugin.yml"]),
    ({"custom": {"vap_enable": False, "map_enable": False, "admission_enable": False}, "devicePlugin": {"sharing": "gpushare"},
      "devices": {"ascend": {"mindcluster": True}}},
     ["volcano.yml", "volcano-device-plugin.yml", "volcano-mindcluster.yml", "ascend-mindcluster-plugin.yml"]),
    ({"draDriver": {"enabled": True}}, [*BY_DEFAULT, "pumice-dra-driver.yml"]),
    ({"draDriver": {"npus": True}}, [*BY_DEFAULT, "pumice-dra-driver-npu.yml"]),
    ({"web": {"enabled": True}}, [*BY_DEFAULT, "pumice-web.yml"]),
]  # fmt: skip


def by_key(objects: list[Json]) -> dict[Any, Json]:
    found = {key(obj): obj for obj in objects}
    assert len(found) == len(objects), "an object is there twice"
    return found


@pytest.mark.parametrize(("values", "files"), SWITCHES, ids=["nothing", "more cards", "legacy cards", "claims", "NPUs", "a page"])
def test_the_chart_renders_the_manifests_object_by_object(values: Json, files: list[str]) -> None:
    found, expected = by_key(rendered(values)), by_key([obj for name in files for obj in manifest(name)])
    assert sorted(map(str, found)) == sorted(map(str, expected))
    for name, obj in expected.items():
        assert found[name] == obj, name


@pytest.mark.parametrize(("actions", "may"), [("allocate, backfill", False), ("allocate, defrag", True), ("", False)])
def test_the_scheduler_may_evict_pods_where_its_configuration_names_the_action_that_moves_them(actions: str, may: bool) -> None:
    found = by_key(rendered({"custom": {"scheduler_config_override": f'actions: "{actions}"\n'} if actions else {}}))
    rights = by_key(manifest("volcano-defrag.yml"))
    assert {name: obj for name, obj in found.items() if name in rights} == (rights if may else {})
    evicting = [rule for obj in found.values() if obj["kind"] == "ClusterRole" for rule in obj["rules"]
                if "pods/eviction" in rule["resources"]]  # fmt: skip
    assert len(evicting) == may


def notes_on(version: str, folder: Path) -> str:
    """Return the text that an installation would print there: `helm template` prints no notes, so they are made an object."""
    copy = folder / "chart"
    shutil.copytree(CHART, copy)
    notes = copy / "templates" / "NOTES.txt"
    (copy / "templates" / "shown.yaml").write_text(
        f'{{{{- define "notes" }}}}{notes.read_text()}{{{{ end }}}}\nnotes: {{{{ include "notes" . | toJson }}}}\n')
    notes.unlink()
    done = helm("template", "pumice", str(copy), f"--kube-version={version}", "--show-only=templates/shown.yaml")
    assert done.returncode == 0, done.stderr
    return str(yaml.safe_load(done.stdout)["notes"])


@pytest.mark.parametrize(("version", "there"), [("1.29.3", 0), ("1.30.0", 3), ("1.35.2", 3), ("1.36.0", 4), ("1.36.1-eks-1", 4)])
def test_policies_come_where_the_api_server_has_them_and_are_told_of_where_not(
    version: str, there: int, tmp_path: Path,
) -> None:  # fmt: skip
    """Offline the version tells; on a cluster what it serves does (tests/contract/test_chart.py)."""
    done = helm("template", "pumice", str(CHART), f"--kube-version={version}")
    found = {key(obj) for obj in yaml.safe_load_all(done.stdout) if obj}
    assert [name for name in POLICIES if {key(obj) for obj in manifest(name)} <= found] == POLICIES[:there]
    notes = notes_on(version, tmp_path)
    assert [name for name in POLICIES if f"left out: {name}" in notes or f", {name}" in notes] == POLICIES[there:]
    assert ("custom.enabled_admissions" in notes) == (there < 4)


def test_every_manifest_is_behind_some_switch() -> None:
    files = {name for _, files in SWITCHES for name in files}
    files |= {"volcano-defrag.yml", "volcano-share-claims.yml"}  # with what a daemon is told besides
    assert files == {path.name for path in (CHART / "manifests").glob("*.yml")}


def test_every_custom_resource_definition_comes_with_the_chart() -> None:
    done = helm("show", "crds", str(CHART))
    found = {obj["metadata"]["name"]: obj for obj in yaml.safe_load_all(done.stdout) if obj}
    files = sorted((CHART / "manifests" / "crds").iterdir())
    assert found == {obj["metadata"]["name"]: obj for path in files for obj in [yaml.safe_load(path.read_text())]}


def test_a_packed_chart_holds_what_its_links_name(tmp_path: Path) -> None:
    done = helm("package", str(CHART), f"--destination={tmp_path}")
    assert done.returncode == 0, done.stderr
    (packed,) = tmp_path.iterdir()
    from_folder, from_package = (helm("template", "pumice", str(chart), "--include-crds") for chart in (CHART, packed))
    assert from_package.returncode == 0, from_package.stderr
    assert from_package.stdout == from_folder.stdout


def test_lint_finds_nothing() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


def leaves(values: Json, *above: str) -> dict[tuple[str, ...], Any]:
    found: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        found |= leaves(value, *above, name) if isinstance(value, dict) and value else {(*above, name): value}
    return found


def allowed(schema: Json, *above: str) -> set[tuple[str, ...]]:
    if "properties" not in schema:
        return {above}
    assert above in ((), ("global",)) or schema["additionalProperties"] is False, "a misspelt name would pass"
    return {path for name, below in schema["properties"].items() for path in allowed(below, *above, name)}


VALUES = leaves(yaml.safe_load((CHART / "values.yaml").read_text()))


def test_every_value_has_a_type_and_nothing_else_has_one() -> None:
    assert allowed(json.loads((CHART / "values.schema.json").read_text())) == set(VALUES)


def nested(given: dict[tuple[str, ...], Any]) -> Json:
    found: Json = {}
    for path, value in given.items():
        below = found
        for name in path[:-1]:
            below = below.setdefault(name, {})
        below[path[-1]] = value
    return found


def test_a_value_of_the_wrong_type_is_refused_by_its_name_and_so_is_a_name_that_nobody_knows() -> None:
    """No value is a list of lists."""
    said = refusal(nested({path: [[1]] for path in VALUES} | {("custom", "scheduler_replica"): 2}))
    silent = [path for path in VALUES if f"'/{'/'.join(path)}" not in said]
    assert silent == []
    assert "'scheduler_replica' not allowed" in said


def test_a_value_that_is_emptied_is_refused_by_its_name_before_it_could_switch_anything_off() -> None:
    """An empty word in a values file takes the chart's own value out: a check would be gone, or a template break."""
    switches = {path: None for path, value in VALUES.items() if value not in (None, "", {})}
    said = refusal(nested(switches))
    assert [path for path in switches if f"'{path[-1]}'" not in said] == []
    sections = {(path[0],): None for path in VALUES}
    said = refusal(nested(sections))
    assert [path for path in sections if f"'{path[0]}'" not in said] == []


def test_a_word_that_is_emptied_is_as_if_nothing_was_said() -> None:
    words = {path: None for path, value in VALUES.items() if value in (None, "", {})}
    assert by_key(rendered(nested(words))) == by_key(rendered({}))
