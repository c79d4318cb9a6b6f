"""The patch of a step applied to the JobTemplate (design document of Volcano's JobFlow, Job Template Parameter Overriding)."""

from __future__ import annotations

from typing import Any

import pytest

from pumice_jobs.controllers.jobflow import patched

BASE = {
    "minAvailable": 1, "queue": "default", "plugins": {"ssh": [], "svc": ["--publish-not-ready-addresses"]},
    "policies": [{"event": "PodFailed", "action": "RestartJob"}], "volumes": [{"mountPath": "/data", "volumeClaimName": "old"}],
    "tasks": [{"name": "main", "replicas": 1, "template": {"spec": {
        "restartPolicy": "OnFailure", "nodeSelector": {"a": "1"}, "affinity": {"nodeAffinity": {}},
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "containers": [{"name": "c", "image": "i:1", "command": ["run"], "env": [{"name": "A", "value": "1"}],
                        "resources": {"requests": {"cpu": "1"}}}],
    }}}],
}  # fmt: skip


def pod(spec: dict[str, Any]) -> dict[str, Any]:
    (task,) = spec["tasks"]
    return dict(task["template"]["spec"])


def of_pod(**fields: Any) -> dict[str, Any]:
    return {"tasks": [{"name": "main", "template": {"spec": fields}}]}


def of_container(**fields: Any) -> dict[str, Any]:
    return of_pod(containers=[{"name": "c", **fields}])


@pytest.mark.parametrize(("patch", "key", "becomes"), [
    ({"queue": "gpus"}, "queue", "gpus"), ({"queue": "gpus"}, "minAvailable", 1), ({"minSuccess": 1}, "minSuccess", 1),
    ({"policies": [{"event": "*", "action": "AbortJob"}]}, "policies", [{"event": "*", "action": "AbortJob"}]),
    ({"plugins": {"svc": ["--disable-network-policy=true"], "env": []}}, "plugins",
     {"ssh": [], "svc": ["--publish-not-ready-addresses", "--disable-network-policy=true"], "env": []}),
    ({"volumes": [{"mountPath": "/data", "volumeClaimName": "new"}, {"mountPath": "/more"}]}, "volumes",
     [{"mountPath": "/data", "volumeClaimName": "new"}, {"mountPath": "/more"}]),
])  # fmt: skip
def test_what_a_patch_names_of_a_job_is_changed_and_the_rest_stays(patch: Any, key: str, becomes: Any) -> None:
    assert patched(BASE, patch)[key] == becomes


@pytest.mark.parametrize(("patch", "key", "becomes"), [
    (of_pod(nodeSelector={"b": "2"}), "nodeSelector", {"a": "1", "b": "2"}),
    (of_pod(affinity={"podAffinity": {}}), "affinity", {"podAffinity": {}}),
    (of_pod(volumes=[{"name": "scratch", "nfs": {}}]), "volumes", [{"name": "scratch", "nfs": {}}]),
    (of_pod(tolerations=[{"key": "k", "operator": "Exists"}]), "tolerations", [{"key": "k", "operator": "Exists"}]),
])  # fmt: skip
def test_what_a_patch_names_of_a_pod_is_changed(patch: Any, key: str, becomes: Any) -> None:
    found = pod(patched(BASE, patch))
    assert (found[key], found["restartPolicy"]) == (becomes, "OnFailure")


@pytest.mark.parametrize(("patch", "key", "becomes"), [
    (of_container(image="i:2"), "image", "i:2"), (of_container(command=["other", "thing"]), "command", ["other", "thing"]),
    (of_container(env=[{"name": "A", "valueFrom": {}}, {"name": "B", "value": "2"}]), "env",
     [{"name": "A", "valueFrom": {}}, {"name": "B", "value": "2"}]),
    (of_container(resources={"limits": {"cpu": "2"}}), "resources", {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
])  # fmt: skip
def test_what_a_patch_names_of_a_container_is_changed(patch: Any, key: str, becomes: Any) -> None:
    (found,) = pod(patched(BASE, patch))["containers"]
    assert (found[key], found["name"]) == (becomes, "c")


def test_a_container_and_a_task_of_another_name_are_added() -> None:
    found = patched(BASE, {"tasks": [{"name": "more"}, *of_pod(containers=[{"name": "sidecar"}])["tasks"]]})
    assert [task["name"] for task in found["tasks"]] == ["main", "more"]
    assert [each["name"] for each in found["tasks"][0]["template"]["spec"]["containers"]] == ["c", "sidecar"]


def test_a_task_that_the_patch_does_not_name_is_the_only_one() -> None:
    patch = {"tasks": [{"replicas": 3}]}
    assert [(task["name"], task["replicas"]) for task in patched(BASE, patch)["tasks"]] == [("main", 3)]
    with pytest.raises(ValueError, match="names none of the 2 tasks"):
        patched({"tasks": [{"name": "a"}, {"name": "b"}]}, patch)


def test_a_template_is_not_changed_by_the_patch_of_a_flow() -> None:
    before = repr(BASE)
    patched(BASE, {"queue": "q", **of_container(image="i:2", env=[{"name": "A", "value": "2"}])})
    assert repr(BASE) == before
