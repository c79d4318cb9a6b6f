"""Cards that claims hold, in the tables of ``pumice top`` and ``pumice status`` and in the file of ``pumice dump``."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from kit.claims import asks, claim, of_memory, published, shared_card
from kit.command_line import call
from kit.device_claims import GPU, ClaimWorld, cards, whole
from kit.mig_rules import RuledSlices
from kit.objects import node, pod
from kit.scheduler_confs import conf

from pumice.cli.cluster_snapshot import ClusterSnapshot, decisions_of, engine_of, load, save, trimmed
from pumice.cli.explain import app as explain
from pumice.cli.fits import app as fits
from pumice.cli.replay import app
from pumice.devices.ascend_mindcluster.node.claims import slice_specs as npu_specs
from pumice.devices.claimed_rows import with_claims
from pumice.devices.device_type import CardRow
from pumice.devices.nvidia_vgpu.node.claims import SHARED, slice_specs
from pumice.model.amount import MIB
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import driver_chips
from pumice.node.claims import slice_object
from pumice.ports.cards import CardFacts

Json = dict[str, Any]


def world() -> ClaimWorld:
    found = ClaimWorld(conf("gang", "predicates"))
    found.add(node("n1"))
    attributes = {"uuid": {"string": "GPU-0"}, "productName": {"string": "NVIDIA A100"}}
    one = {"kind": "ResourceSlice", **published(shared_card("gpu-0-shared", attributes=attributes), pool="n1", nodeName="n1")}
    found.publish(GPU, one)
    return found


def told(world: ClaimWorld, *rows: CardRow) -> list[tuple[str, int, int, int, list[str]]]:
    found = with_claims(rows, world.slices.values(), world.claims.values())
    return [(row.node, row.index, row.memory, row.cores, list(map(str, row.holders))) for row in found]


def test_a_card_that_a_driver_of_claims_alone_publishes_is_shown_with_the_pods_by_claim() -> None:
    here = world()
    here.ask("a", of_memory("3000Mi", cores="50"))
    here.settle()
    (row,) = with_claims([], here.slices.values(), here.claims.values())
    assert (row.node, row.uuid, row.type, row.total) == ("n1", "GPU-0", "NVIDIA A100", 81920)
    assert told(here) == [("n1", 0, 3000, 50, ["default/a by claim a-c0 (3000 MiB, 50 %)"])]


def test_a_card_that_is_registered_too_has_its_claims_beside_its_pods() -> None:
    here = world()
    here.shared("both", of_memory("4Gi", cores="10"))
    for name in "ab":
        here.use(name, "both")
    here.settle()
    card = CardRow("n1", 3, "GPU-0", "NVIDIA-A100", 81920)
    assert told(here, card) == [("n1", 3, 4096, 10, ["default/a and 1 more by claim both (4096 MiB, 10 %)"])]


def test_a_whole_card_is_whole_and_who_only_looks_holds_nothing() -> None:
    here = ClaimWorld(conf("gang", "predicates"))
    here.add(node("n1"))
    here.publish(GPU, cards("n1", 1))
    here.ask("a", whole())
    here.ask("look", claim(asks(adminAccess=True)))
    here.settle()
    assert told(here) == [("n1", 0, 0, 100, ["default/a by claim a-c0 (whole)"])]


def test_a_claim_without_pods_is_named_and_what_cannot_be_read_ends_nothing() -> None:
    here = world()
    result = {"request": "g", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0-shared", "shareID": "s",
              "consumedCapacity": {"memory": "1Gi", "cores": "5"}}  # fmt: skip
    held = {"metadata": {"name": "c", "namespace": "team"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    odd: list[Json] = [{"status": {"allocation": {"devices": {"results": "x"}}, "reservedFor": ["y"]}}, {"spec": 3}]
    bad: Json = {"metadata": {"name": "bad"}, "spec": {"driver": 5}}
    rows = with_claims([], [*here.slices.values(), bad], [held, *odd])
    assert [str(one) for one in rows[0].holders] == ["claim team/c (1024 MiB, 5 %)"]


def given(driver: str, device: str) -> Json:
    result = {"request": "g", "driver": driver, "pool": "n1", "device": device}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}]}
    return {"metadata": {"name": device, "namespace": "team"}, "status": status}


def test_a_slice_of_an_npu_is_shown_as_its_template_and_its_part_of_the_chip() -> None:
    chip = CardFacts(0, "U-0", "310P3", driver_chips()["310P3"].size.memory * MIB, minor=0)
    slices = [slice_object(spec, at, {}, 1) for at, spec in enumerate(npu_specs("n1", [chip], {}, 1))]
    held = [given("npu.pumice.io", device) for device in ("npu-0-vir02-0", "npu-0-vir04-3c-0")]
    [row] = with_claims([], slices, held)
    assert (row.uuid, row.total, row.memory, row.cores) == ("U-0", 24576, 18432, 75)
    assert [str(one) for one in row.holders] == [
        "team/p by claim npu-0-vir02-0 (vir02, 6144 MiB, 25 %)", "team/p by claim npu-0-vir04-3c-0 (vir04_3c, 12288 MiB, 50 %)"]
    [row] = with_claims([CardRow("n1", 0, "U-0", "Ascend310P", 0)], slices, held[:1])
    assert (row.cores, row.holders[0].template) == (25, "vir02")


def test_a_card_in_mig_mode_is_shown_with_its_slices_where_a_driver_of_claims_alone_publishes_it() -> None:
    card = CardFacts(0, "GPU-0", "NVIDIA A100-SXM4-40GB", 40 << 30, minor=0, mig=True)
    ruled = RuledSlices({"GPU-0": "A100-SXM4-40GB"})
    specs = slice_specs("n1", [card], SHARED, {}, 1, {"GPU-0": ruled.profiles("GPU-0")})
    slices = [slice_object(spec, at, {}, 1) for at, spec in enumerate(specs)]
    [device] = [one["name"] for spec in specs for one in spec.get("devices", ()) if one["name"].endswith("-mig-2g10gb-14-2")]
    [row] = with_claims([], slices, [given("gpu.pumice.io", device)])
    assert (row.uuid, row.type, row.total, row.memory) == ("GPU-0", "NVIDIA A100-SXM4-40GB", 40960, 9856)
    assert str(row.holders[0]).endswith("(2g.10gb, 9856 MiB, 28 %)")


def case_of(here: ClaimWorld) -> ClusterSnapshot:
    kept: dict[str, list[Json]] = {
        "nodes": list(here.nodes.values()), "pods": list(here.pods.values()),
        "deviceClasses": [trimmed(one, None) for one in here.device_classes.values()],
        "resourceSlices": [trimmed(one, None) for one in here.slices.values()],
        "resourceClaims": [trimmed(one, None) for one in here.claims.values()],
    }  # fmt: skip
    return ClusterSnapshot(here.now, conf("gang", "predicates"), objects=copy.deepcopy(kept))


def test_a_dump_holds_claims_and_decides_as_the_scheduler_does(tmp_path: Path) -> None:
    here = world()
    here.ask("a", of_memory("60Gi", cores="50"))
    here.settle()
    here.refuse = lambda bind: True
    here.ask("fits", of_memory("20Gi", cores="50"))
    here.ask("waits", of_memory("30Gi", cores="50"))
    path = tmp_path / "case.json"
    path.write_text(save(case_of(here)))
    case = load(path)
    found = {one["pod"]: one for one in decisions_of(case)}
    assert found["default/fits"]["node"] == "n1"
    assert "cannot allocate all claims (g: capacity memory)" in found["default/waits"]["waits"]
    engine = engine_of(case)
    assert list(engine.state.device_claims.validate()) == []
    assert json.loads(path.read_text())["objects"]["resourceClaims"][0]["status"]["reservedFor"]


def test_a_dump_with_claims_is_replayed_to_the_same_devices_and_other_slices_are_seen(tmp_path: Path) -> None:
    """Which device a claim gets is a decision: `pumice replay` compares it."""
    here = world()
    here.ask("runs", of_memory("1Gi", cores="10"))
    here.settle()
    here.ask("waits-for-a-node", of_memory("3000Mi", cores="20"), of_memory("1Gi", cores="30"))
    path = tmp_path / "case.json"
    case = case_of(here)
    case.decisions = decisions_of(case)
    [decided] = [one for one in case.decisions if one["pod"] == "default/waits-for-a-node"]
    assert decided.get("waits") is None, "there is room"
    assert decided["devices"] == (
        "claim waits-for-a-node-c0 g: gpu.example.com/n1/gpu-0-shared (cores 20, memory 3000Mi); "
        "claim waits-for-a-node-c1 g: gpu.example.com/n1/gpu-0-shared (cores 30, memory 1Gi)")  # fmt: skip
    path.write_text(save(case))
    assert call(app, [str(path)]).exit_code == 0
    devices = case.objects["resourceSlices"][0]["spec"]["devices"]
    devices[0]["name"] = "gpu-1-shared"
    path.write_text(save(case))
    assert "gpu-1-shared" in (differing := call(app, [str(path)])).stdout
    assert differing.exit_code == 1


@pytest.mark.parametrize(("memory", "answer"), [("20Gi", "n1 is next"), ("30Gi", "capacity memory: wants 30Gi, 20Gi is free")])
def test_a_manifest_with_a_pod_and_the_template_of_its_claim_is_asked_about_as_it_will_be(
    tmp_path: Path, memory: str, answer: str
) -> None:
    here = world()
    here.ask("a", of_memory("60Gi", cores="50"))
    here.settle()
    (tmp_path / "case.json").write_text(save(case_of(here)))
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "share"}, "spec": of_memory(memory, cores="50")}
    asking = {"kind": "Pod", "metadata": {"name": "late"},
              "spec": {"schedulerName": "volcano", "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
                       "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "share"}]}}  # fmt: skip
    manifest = tmp_path / "pod.yaml"
    for documents in ((template, asking), (asking, template)):
        manifest.write_text("\n---\n".join(map(json.dumps, documents)))
        found = call(fits, ["-f", str(manifest), "--from", str(tmp_path / "case.json"), "-o", "wide"])
        assert (found.exit_code, answer in found.stdout) == (int(memory == "30Gi"), True), found.stdout
    manifest.write_text(json.dumps(asking))
    found = call(fits, ["-f", str(manifest), "--from", str(tmp_path / "case.json")])
    assert found.exit_code == 1
    assert "claim gpu: no ResourceClaimTemplate share in the files; write it beside the pod" in found.stderr


@pytest.mark.parametrize(("memory", "answer"), [("10Gi", "n1 is next"), ("20Gi", "wants 20Gi, 10Gi is free")])
def test_claims_without_a_pod_are_asked_of_the_cluster_as_those_of_one_pod(tmp_path: Path, memory: str, answer: str) -> None:
    here = world()
    here.ask("a", of_memory("60Gi", cores="50"))
    here.settle()
    (tmp_path / "case.json").write_text(save(case_of(here)))
    first = {"kind": "ResourceClaim", **of_memory("10Gi", cores="10"), "metadata": {"name": "first"}}
    second = {"kind": "ResourceClaimTemplate", "metadata": {"name": "second"}, "spec": of_memory(memory, cores="10")}
    (tmp_path / "claims.yaml").write_text(json.dumps({"kind": "List", "metadata": {}, "items": [first, second]}))
    found = call(fits, ["-f", str(tmp_path / "claims.yaml"), "--from", str(tmp_path / "case.json"), "-o", "wide"])
    assert (found.exit_code, answer in found.stdout) == (int(memory == "20Gi"), True), found.stdout
    assert "schedulerName" not in found.stdout


def test_a_claim_of_the_cluster_is_not_replaced_by_the_manifest_that_asks_for_it(tmp_path: Path) -> None:
    here = world()
    here.shared("both", of_memory("70Gi", cores="50"))
    here.use("a", "both")
    here.settle()
    (tmp_path / "case.json").write_text(save(case_of(here)))
    both, other = ({**of_memory("70Gi", cores="50"), "kind": "ResourceClaim", "metadata": {"name": name}}
                   for name in ("both", "other"))  # fmt: skip
    for document, code in ((both, 0), (other, 1)):
        asking = {"kind": "Pod", "metadata": {"name": "late"},
                  "spec": {"schedulerName": "volcano", "containers": [{"name": "c"}],
                           "resourceClaims": [{"name": "gpu", "resourceClaimName": document["metadata"]["name"]}]}}  # fmt: skip
        (tmp_path / "pod.yaml").write_text("\n---\n".join(map(json.dumps, (document, asking))))
        found = call(fits, ["-f", str(tmp_path / "pod.yaml"), "--from", str(tmp_path / "case.json")])
        assert found.exit_code == code, found.stdout


def test_the_status_of_a_claim_is_cut_down_to_what_decisions_look_at() -> None:
    obj: Json = {"metadata": {"name": "c", "managedFields": [1]}, "spec": {},
                 "status": {"allocation": {"devices": {"results": []}}, "devices": [{"data": {"secret": 1}}]}}  # fmt: skip
    assert trimmed(obj, None) == {"metadata": {"name": "c"}, "spec": {}, "status": {"allocation": {"devices": {"results": []}}}}


def answered(kind: str, obj: Json) -> str:
    """The words of a refusal of a file with this object; empty where the object is read, or passed over."""
    try:
        engine = engine_of(ClusterSnapshot(0.0, conf("predicates"), objects={kind: [obj]}))
        assert list(engine.state.device_claims.validate()) == []
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize("broken", [{"metadata": {}}, {"metadata": {"name": "a"}, "spec": 3}, {"metadata": {"name": 5}}])
def test_an_object_that_no_api_server_would_show_is_named_or_passed_over(broken: Json) -> None:
    for kind in ("resourceSlices", "deviceClasses", "resourceClaims"):
        text = answered(kind, broken)
        assert text == "" or text.startswith(f"objects.{kind}[0]: ")


def template(name: str) -> Json:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": of_memory("1Gi")["spec"]}}


@pytest.mark.parametrize(("named", "templates", "claims", "expected"), [
    ({"resourceClaimTemplateName": "shares"}, ["share"], [],
     ["waits for a ResourceClaim to be made of template shares",
      "there is no ResourceClaimTemplate default/shares: did you mean 'share'?"]),
    ({"resourceClaimTemplateName": "other"}, ["share"], [], ["there is no ResourceClaimTemplate default/other: make it"]),
    ({"resourceClaimTemplateName": "share"}, ["share"], [], ["ResourceClaimTemplate default/share is there: the pod's events"]),
    ({"resourceClaimTemplateName": "share"}, None, [], ["waits for a ResourceClaim to be made of template share\n"]),
    ({"resourceClaimName": "c1"}, [], ["c"], ["ResourceClaim default/c1 is not there"]),
    ({"resourceClaimName": "both1"}, [], ["both"], ["there is no ResourceClaim default/both1: did you mean 'both'?"]),
])  # fmt: skip
def test_a_pod_whose_template_or_claim_is_not_there_is_told_that_it_waits_and_for_what(
    tmp_path: Path, named: Json, templates: list[str] | None, claims: list[str], expected: list[str]
) -> None:
    here = world()
    for name in claims:
        here.shared(name, of_memory("1Gi"))
    waiting = pod("p", cpu="1")
    waiting["spec"]["resourceClaims"] = [{"name": "gpu", **named}]
    here.add(waiting)
    case = case_of(here)
    if templates is not None:
        case.objects["resourceClaimTemplates"] = [template(name) for name in templates]
    path = tmp_path / "case.json"
    path.write_text(save(case))
    text = call(explain, ["pod", "p", "--from", str(path)]).stdout
    assert text.startswith("default/p: cannot be tried yet: spec.resourceClaims")
    assert all(one in text for one in expected), text
    assert "never" not in text
    assert "No single change" not in text
