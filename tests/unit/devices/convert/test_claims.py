"""Shares asked by resource, written as claims: what a pod asks afterwards, and what stays with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pumice.claims.objects import claim_of
from pumice.devices.convert import Converted, convert
from pumice.wire.hami_names import To

ROOT = Path(__file__).parents[4]


def one(text: str, *, from_hami: bool = False) -> Converted:
    (found,) = convert({"f.yaml": text}, To.CLAIMS, from_hami=from_hami)
    return found


def asked(found: Converted) -> dict[str, Any]:
    """What each template asks, which has to be a claim that can be read."""
    result = {}
    for obj in yaml.safe_load_all(found.text):
        if obj and obj["kind"] == "ResourceClaimTemplate":
            claim_of({"metadata": {"name": "c", "namespace": "n"}, "spec": obj["spec"]["spec"]})
            result[obj["metadata"]["name"]] = obj["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    return result


def pod(limits: str, notes: str = "", kind: str = "Pod") -> str:
    return (f"kind: {kind}\nmetadata: {{name: p, annotations: {{{notes}}}}}\nspec:\n  containers:\n"
            f"  - name: c\n    resources:\n      limits: {{{limits}}}\n")  # fmt: skip


def test_the_guides_pod_asks_as_the_example_of_claims_does() -> None:
    found = one((ROOT / "examples/vgpu-user-guide/hami-pod.yaml").read_text())
    [wanted] = asked(Converted("", (ROOT / "examples/claims/pod.yaml").read_text())).values()
    assert asked(found) == {"hami-pod-cuda-container": wanted}
    [made] = [obj for obj in yaml.safe_load_all(found.text) if obj["kind"] == "Pod"]
    [claim] = made["spec"]["resourceClaims"]
    assert claim["resourceClaimTemplateName"] == "hami-pod-cuda-container"
    assert made["spec"]["containers"][0]["resources"] == {"claims": [{"name": claim["name"]}], "limits": {}}
    assert found.left == ()
    assert one(found.text).text == found.text, "converting twice changes nothing more"


TEAM = """\
# a team's
apiVersion: apps/v1
kind: Deployment
metadata: {name: train, namespace: ml}
spec:
  template:
    metadata:
      annotations: {nvidia.com/use-gputype: "A100,h100", nvidia.com/nouse-gpuuuid: GPU-1}
    spec:
      schedulerName: hami-scheduler
      containers:
      - name: c
        resources:
          limits:
            nvidia.com/gpu: 2               # of each 3000 MiB
            nvidia.com/gpumem: "3000"
            cpu: "4"   # kept
            "nvidia.com/gpucores": 30
      - name: d
        resources: {limits: {nvidia.com/gpumem: 100, cpu: 1}, requests: {nvidia.com/gpumem: 100}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  tasks:
  - name: c
    template:
      spec:
        containers:
        - {name: main, resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpucores: 50}}}
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_templates_of_workloads_and_tasks_get_claims_of_their_own_and_comments_stay(newline: str) -> None:
    found = one(TEAM.replace("\n", newline))
    assert newline == "\n" or "\n" not in found.text.replace("\r\n", "")
    templates = asked(found)
    assert set(templates) == {"train-c", "train-d", "train-c-main"}
    assert templates["train-c"]["count"] == 2
    assert templates["train-c"]["capacity"] == {"requests": {"memory": "3000Mi", "cores": "30"}}
    expressions = [one["cel"]["expression"] for one in templates["train-c"]["selectors"]]
    assert expressions == ['!(device.attributes["gpu.pumice.io"].uuid in ["GPU-1"])',
                           '["a100", "h100"].exists(t, device.attributes["gpu.pumice.io"].productName.lowerAscii().contains(t))']
    assert templates["train-c-main"]["capacity"] == {"requests": {"cores": "50"}}
    assert "# a team's" in found.text
    assert 'cpu: "4"   # kept' in found.text
    assert "schedulerName: volcano" in found.text
    assert "nvidia.com/gpumem" not in found.text
    assert [(left.name, left.line) for left in found.left] == [("container d", 19)]
    assert "takes all of them" in found.left[0].consequence
    spaces = {obj["metadata"]["name"]: obj["metadata"].get("namespace") for obj in yaml.safe_load_all(found.text)
              if obj["kind"] == "ResourceClaimTemplate"}  # fmt: skip
    assert spaces == {"train-c": "ml", "train-d": "ml", "train-c-main": None}


@pytest.mark.parametrize(("text", "why"), [
    (pod("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory-percentage: 50"), "not in per cent"),
    (pod("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-memory: 3Gi"), "no whole number"),
    (pod("volcano.sh/vgpu-number: 1, volcano.sh/vgpu-cores: 150"), "100 per cent"),
    (pod("volcano.sh/vgpu-number: 1", "volcano.sh/vgpu-mode: mig"), "no slices of mode mig"),
    (pod("volcano.sh/vgpu-number: 1", "pumice.io/burst-cores: '80'"), "a claim has no burst"),
    (pod("nvidia.com/gpu: 1"), "may be NVIDIA's own"),
    ('{"kind": "Pod", "spec": {"containers": [{"name": "c", "resources": {"limits": {"volcano.sh/vgpu-number": 1}}}]}}', "JSON"),
    ("kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {requests.volcano.sh/vgpu-number: 4}}\n", "deviceclass"),
])  # fmt: skip
def test_what_a_claim_cannot_say_stays_with_the_reason(text: str, why: str) -> None:
    found = one(text)
    assert found.text == text
    assert why in found.left[0].consequence


def test_nvidias_own_name_is_hamis_where_that_is_said() -> None:
    assert list(asked(one(pod("nvidia.com/gpu: 1, nvidia.com/gpucores: 10"))).values())
    assert list(asked(one(pod("nvidia.com/gpu: 1"), from_hami=True)).values()) == [{"deviceClassName": "gpu.pumice.io"}]
