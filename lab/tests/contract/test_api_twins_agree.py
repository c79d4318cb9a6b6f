"""The embedded and the real API server, side by side: the same random writes end in the same objects.

Seeds are fixed, so that a difference can be looked at; PUMICE_TWIN_RUNS raises the number of runs for a longer search.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from kit.control_plane import Api, Json, control_plane
from lab.tests.contract.random_objects import PATHS, Maker

RUNS = int(os.environ.get("PUMICE_TWIN_RUNS", "40"))
MEDIA = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}
MANAGERS = ("ann", "bob", "kubectl")
pytestmark = pytest.mark.kube


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Api]]:
    with (
        control_plane("kube", tmp_path_factory.mktemp("real")) as real,
        control_plane("embedded", tmp_path_factory.mktemp("ours")) as ours,
    ):
        yield real, ours


def containers(rng: random.Random, keyed: bool = False) -> list[Json]:
    found = []
    for name in rng.sample(["a", "b", "c"], rng.randint(1, 3)):
        container: Json = {"name": name, "image": rng.choice(["i:1", "i:2", "i"])}
        if rng.random() < 0.6:
            names = rng.sample(["X", "Y", "Z"], rng.randint(0, 3))
            container["env"] = [{"name": n, "value": rng.choice(["", "1", "2"])} for n in names]
        if rng.random() < 0.4:
            container["ports"] = [
                {
                    "containerPort": port,
                    **({"protocol": rng.choice(["TCP", "UDP"])} if rng.random() < 0.5 or keyed else {}),
                }
                for port in rng.sample([80, 81, 82], rng.randint(0, 2))
            ]
        if rng.random() < 0.4:
            amounts = rng.choice(
                [{"cpu": "500m"}, {"cpu": "250m", "memory": "1Gi"}, {"x.io/gpu": "2"}, {"cpu": "2", "x.io/gpu": "1k"}]
            )
            container["resources"] = {"limits": amounts}
        if rng.random() < 0.3:
            container["args"] = [rng.choice("xyz") for _ in range(rng.randint(0, 2))]
        found.append(container)
    return found


def template(rng: random.Random) -> Json:
    spec: Json = {"containers": containers(rng)}
    if rng.random() < 0.4:
        spec["volumes"] = [
            {"name": n, **rng.choice([{"emptyDir": {}}, {"hostPath": {"path": "/x"}}, {}])}
            for n in rng.sample("uvw", 2)
        ]
    if rng.random() < 0.3:
        spec["tolerations"] = [{"key": rng.choice("kl"), "operator": "Exists"}]
    if rng.random() < 0.3:
        spec["nodeSelector"] = {rng.choice("pq"): "1"}
    return {"metadata": {"labels": {"app": "x"}}, "spec": spec}


def labels(rng: random.Random) -> Json:
    return {key: rng.choice(["1", "2"]) for key in rng.sample(["l1", "l2", "l3"], rng.randint(0, 3))}


def deployment(rng: random.Random) -> Json:
    spec: Json = {"selector": {"matchLabels": {"app": "x"}}, "template": template(rng)}
    if rng.random() < 0.6:
        spec["replicas"] = rng.randint(0, 3)
    if rng.random() < 0.3:
        spec["strategy"] = rng.choice(
            [{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 1}}, {"type": "RollingUpdate"}]
        )
    metadata: Json = {"name": "d"}
    if found := labels(rng):
        metadata["labels"] = found
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def partial(rng: random.Random) -> Json:
    """Some of a deployment, as an applier with few interests names it."""
    whole = deployment(rng)
    whole["spec"] = {key: part for key, part in whole["spec"].items() if rng.random() < 0.6}
    if "template" in whole["spec"]:
        whole["spec"]["template"].pop("metadata")
    return {key: part for key, part in whole.items() if part != {}}


def nulled(rng: random.Random, value: Any) -> Any:
    """Here and there a null, which deletes."""
    if isinstance(value, dict):
        kept = ("name", "containerPort", "selector", "apiVersion", "kind", "metadata", "cpu", "memory", "x.io/gpu")
        return {k: None if rng.random() < 0.08 and k not in kept else nulled(rng, v)
                for k, v in value.items()}  # fmt: skip
    return [nulled(rng, v) for v in value] if isinstance(value, list) else value


def strategic(rng: random.Random) -> Json:
    patch = nulled(rng, {"metadata": {"labels": labels(rng)}, "spec": partial(rng).get("spec", {})})
    spec = ((patch.get("spec") or {}).get("template") or {}).get("spec") or {}
    if spec.get("containers") and rng.random() < 0.15:
        spec["containers"].append({"name": rng.choice("abc"), "$patch": "delete"})
    return patch


def json_patch(rng: random.Random) -> list[Json]:
    paths = ["/metadata/labels", "/metadata/labels/l1", "/spec/replicas", "/spec/template/spec/containers/0/image",
             "/spec/template/spec/containers/1", "/spec/template/spec/nodeSelector",
             "/spec/template/spec/containers/-"]  # fmt: skip
    values: dict[str, Any] = {
        "labels": labels(rng),
        "l1": "9",
        "replicas": 7,
        "image": "j:1",
        "nodeSelector": {"r": "1"},
    }
    operations = []
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(paths)
        op = rng.choice(["add", "replace", "remove", "test"])
        value = values.get(path.rpartition("/")[2], {"name": "n", "image": "n:1"})
        operations.append({"op": op, "path": path, **({} if op == "remove" else {"value": value})})
    return operations


def operation(rng: random.Random) -> tuple[str, Any, str, dict[str, str]]:
    """Method, body, media type, query."""
    manager = {"fieldManager": rng.choice(MANAGERS)}
    match rng.choice(["strategic", "merge", "json", "apply", "apply", "apply", "update"]):
        case "strategic":
            return "PATCH", strategic(rng), MEDIA["strategic"], manager
        case "merge":
            return "PATCH", nulled(rng, partial(rng)), MEDIA["merge"], manager
        case "json":
            return "PATCH", json_patch(rng), MEDIA["json"], manager
        case "update":
            return "PUT", deployment(rng), "application/json", manager
        case _:
            force = {"force": "true"} if rng.random() < 0.5 else {}
            body = partial(rng) if rng.random() < 0.6 else deployment(rng)
            return "PATCH", body, "application/apply-patch+yaml", {**manager, **force}


def comparable(value: Json) -> Json:
    """An object without what must differ: identity, times, revisions."""
    value = json.loads(json.dumps(value))
    metadata = value.get("metadata", {})
    for key in ("uid", "resourceVersion", "creationTimestamp", "namespace"):
        metadata.pop(key, None)
    entries = [{k: v for k, v in entry.items() if k != "time"} for entry in metadata.get("managedFields", [])]
    # Added by the embedded server as in a cluster with its controllers; the bare real one here has those plugins off.
    for key in ("serviceAccount", "serviceAccountName"):
        value.get("spec", {}).pop(key, None)
    waits = "kubernetes.io/pvc-protection"  # for a controller that ours does not have
    metadata["finalizers"] = [f for f in metadata.get("finalizers", []) if f != waits]
    for condition in value.get("status", {}).get("conditions") or []:
        condition.pop("lastProbeTime", None)
        condition.pop("lastTransitionTime", None)
    uids = ("controller-uid", "batch.kubernetes.io/controller-uid")
    for labels_ in (
        metadata.get("labels", {}),
        value.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {}),
        value.get("spec", {}).get("selector", {}).get("matchLabels", {}) if "template" in value.get("spec", {}) else {},
    ):
        labels_.update({uid: "" for uid in uids if uid in labels_})
    if entries:
        metadata["managedFields"] = sorted(entries, key=lambda e: (e["manager"], e["operation"]))
    return value


def differences(real: Any, ours: Any, path: str = "") -> list[str]:
    """One line per place where two values differ."""
    if isinstance(real, dict) and isinstance(ours, dict):
        return [line for key in sorted(real.keys() | ours.keys())
                for line in differences(real.get(key, "(absent)"), ours.get(key, "(absent)"), f"{path}.{key}")]  # fmt: skip
    if isinstance(real, list) and isinstance(ours, list) and len(real) == len(ours):
        return [
            line for i, (a, b) in enumerate(zip(real, ours, strict=True)) for line in differences(a, b, f"{path}[{i}]")
        ]
    return [] if real == ours else [f"{path}: real {json.dumps(real)[:300]}, ours {json.dumps(ours)[:300]}"]


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_same_writes_end_the_same(twins: tuple[Api, Api], seed: int) -> None:
    rng = random.Random(seed)
    name = f"twin-{seed}"
    for api in twins:
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    collection = f"/apis/apps/v1/namespaces/{name}/deployments"
    first = deployment(rng)
    steps = [("POST", collection, first, "application/json", {"fieldManager": "maker"})]
    for _ in range(8):
        method, body, media, query = operation(rng)
        steps.append((method, f"{collection}/d", body, media, query))
    for method, path, body, media, query in steps:
        real, ours = (api.call(method, path, body, media=media, **query) for api in twins)
        story = f"{method} {media} {query}\n{json.dumps(body)}\nreal {real.code}, ours {ours.code}: " + "; ".join(
            f"{api.kind}: {answer.json.get('message', '')[:400]}"
            for api, answer in zip(twins, (real, ours), strict=True)
        )
        if real.code == 500:
            return  # a patch that the real server trips over
        assert (ours.code, ours.json.get("reason")) == (real.code, real.json.get("reason")), story
        if real.code < 300:
            found = differences(comparable(real.json), comparable(ours.json))
            assert not found, "\n".join([story, *found])
        elif real.code == 409:
            wanted = sorted((c["field"], c["message"]) for c in real.json.get("details", {}).get("causes", []))
            assert (
                sorted((c["field"], c["message"]) for c in ours.json.get("details", {}).get("causes", [])) == wanted
            ), story
        elif real.code == 422:
            wanted = sorted({c["field"] for c in real.json.get("details", {}).get("causes", [])})
            assert sorted({c["field"] for c in ours.json.get("details", {}).get("causes", [])}) == wanted, story


@pytest.mark.parametrize("plural", PATHS)
@pytest.mark.parametrize("seed", range(max(1, RUNS // 4)))
def test_new_objects_are_completed_and_refused_alike(twins: tuple[Api, Api], plural: str, seed: int) -> None:
    """Twelve random objects of the kind: the same defaults, or the same fields refused."""
    maker = Maker(random.Random(f"{plural}-{seed}"))
    name = f"new-{plural}-{seed}"
    for api in twins:
        api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    path = PATHS[plural].format(name)
    for _ in range(12):
        body = maker.object(plural)
        real, ours = (api.call("POST", path, body, dryRun="All") for api in twins)
        story = f"{json.dumps(body)}\n" + "\n".join(
            f"{api.kind} {answer.code}: {answer.json.get('message', '')[:700]}"
            for api, answer in zip(twins, (real, ours), strict=True)
        )
        assert (ours.code, ours.json.get("reason")) == (real.code, real.json.get("reason")), story
        if real.code < 300:
            found = differences(comparable(real.json), comparable(ours.json))
            assert not found, "\n".join([story, *found])
        elif real.code == 422:
            wanted = {c["field"] for c in real.json["details"]["causes"]}
            assert {c["field"] for c in ours.json["details"]["causes"]} == wanted, story
