"""Shares that pods and Jobs ask by resource, as the admission writes them: as claims, or left alone with a reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kit.job_world import job, task

from pumice.wire.names import SHARE_CLAIMS
from pumice.wire.share_claims import Share, parse, template
from pumice_jobs.admission.review import CREATE, UPDATE, Answer, Request, Settings
from pumice_jobs.admission.rules import BY_PATH, SHARES_TO_CLAIMS, configuration

Json = dict[str, Any]
HAMIS = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4k", "nvidia.com/gpucores": "30", "cpu": "1"}
OURS = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "3000", "volcano.sh/vgpu-cores": "50"}


def pod(limits: Json, *, name: str = "p", notes: Json | None = None, owner: str = "", **spec: Any) -> Json:
    owners = [{"kind": "ReplicaSet", "name": "r", "uid": owner, "controller": True}] if owner else []
    meta = {"name": name, "namespace": "n", "annotations": notes or {}, "ownerReferences": owners}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits, "requests": dict(limits)}}]
    return {"metadata": meta, "spec": {"schedulerName": "volcano", "containers": containers, **spec}}


def ask(obj: Json, *, old: Json | None = None, path: str = "/claims/mutate", uid: str = "ask") -> Answer:
    before = copy.deepcopy(obj)
    request = Request(UPDATE if old else CREATE, "n", obj["metadata"].get("name", ""), obj, old or {}, uid)
    answer = BY_PATH[path].decide(request, None, Settings())
    assert obj == before, "what came is not changed in place"
    return answer


def patched(obj: Json, answer: Answer) -> Json:
    found = copy.deepcopy(obj)
    for step in answer.patch:
        *way, last = step["path"].split("/")[1:]
        at = found
        for word in way:
            at = at[word]
        at[last] = step["value"]
    return found


def written(obj: Json, **more: Any) -> Json:
    return patched(obj, ask(obj, **more))


def shares(obj: Json) -> list[Share]:
    return list(parse(obj["metadata"]["annotations"][SHARE_CLAIMS]).values())


@pytest.mark.parametrize(("limits", "share", "rest"), [
    (OURS, Share(1, 3000, 50), {}), (HAMIS, Share(2, 4000, 30), {"cpu": "1"}),
    ({"nvidia.com/gpumem": 100, "nvidia.com/gpucores": 1}, Share(1, 100, 1), {}),
])  # fmt: skip
def test_a_share_is_a_claim_by_a_template_that_the_pod_names_and_says(limits: Json, share: Share, rest: Json) -> None:
    found = written(pod(limits))
    [entry] = found["spec"]["resourceClaims"]
    assert entry["name"] == entry["resourceClaimTemplateName"]
    assert parse(found["metadata"]["annotations"][SHARE_CLAIMS]) == {entry["name"]: share}
    assert found["metadata"]["labels"] == {SHARE_CLAIMS: "true"}
    resources = found["spec"]["containers"][0]["resources"]
    assert resources == {"claims": [{"name": entry["name"]}], **({"limits": rest, "requests": rest} if rest else {})}
    assert ask(found).patch == [], "what is written is written once"


def test_each_container_has_a_claim_of_its_own_beside_what_the_pod_claims_already() -> None:
    asks = pod(OURS, resourceClaims=[{"name": "net", "resourceClaimName": "nic"}], initContainers=[
        {"name": "first", "resources": {"limits": OURS, "claims": [{"name": "net"}]}}])  # fmt: skip
    asks["spec"]["containers"].append({"name": "plain"})
    found = written(asks)
    assert len({one["name"] for one in found["spec"]["resourceClaims"]}) == 3
    assert found["spec"]["initContainers"][0]["resources"]["claims"][0] == {"name": "net"}
    assert found["spec"]["containers"][1] == {"name": "plain"}
    assert shares(found) == [Share(1, 3000, 50)] * 2


def test_cards_and_models_that_annotations_name_are_selectors_of_the_template() -> None:
    notes = {"nvidia.com/use-gputype": "A100", "volcano.sh/vgpu-nouse-gpuuuid": "GPU-1, GPU-2"}
    [share] = shares(written(pod(OURS, notes=notes)))
    assert share == Share(1, 3000, 50, not_cards=("GPU-1", "GPU-2"), models=("a100",))
    request = template("t", "n", share)["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert len(request["selectors"]) == 2


def names_of(*objects: Json) -> set[str]:
    return {one["resourceClaimTemplateName"] for obj in objects for one in obj["spec"]["resourceClaims"]}


def test_pods_of_one_workload_share_a_template_and_nobody_else_does() -> None:
    assert len(names_of(written(pod(OURS, name="a", owner="u1")), written(pod(OURS, name="b", owner="u1")))) == 1
    assert len(names_of(written(pod(OURS, owner="u1")), written(pod(OURS, owner="u2")), written(pod(OURS)),
                        written(pod({**OURS, "volcano.sh/vgpu-cores": "10"})), written(pod(OURS, name="q")))) == 5  # fmt: skip
    nameless = pod(OURS, name="")
    assert len(names_of(written(nameless, uid="1"), written(nameless, uid="2"))) == 2, "by their asks"
    long = pod(OURS)
    long["spec"]["containers"][0]["name"] = "c" * 63
    assert max(map(len, names_of(written(long)))) <= 63


def test_applied_again_a_pod_is_written_as_it_is_stored_and_one_that_was_stored_as_shares_stays_so() -> None:
    asks = pod(OURS, owner="u1")
    stored = written(asks)
    # as kubectl's patch has it: what the file says, over what is stored
    again = copy.deepcopy(stored)
    again["spec"]["containers"][0]["resources"]["limits"] = dict(OURS)
    assert written(again, old=stored) == stored
    assert ask(asks, old=asks) == Answer()


@pytest.mark.parametrize(("limits", "notes", "why"), [
    ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory-percentage": 50}, {}, "not in per cent"),
    ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": "3Gi"}, {}, "no whole number"),
    ({"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-cores": "101"}, {}, "100 per cent"),
    ({"volcano.sh/vgpu-number": 0}, {}, "no card"),
    (OURS, {"volcano.sh/vgpu-mode": "mig"}, "no slices of mode mig"),
    (OURS, {"pumice.io/burst-memory": "8000"}, "a claim has no burst"),
    ({"nvidia.com/gpu": 1}, {}, "NVIDIA's own plugin's"),
])  # fmt: skip
def test_what_a_claim_cannot_say_stays_as_it_is_and_is_told(limits: Json, notes: Json, why: str) -> None:
    answer = ask(pod(limits, notes=notes))
    assert answer.patch == []
    assert not answer.refused
    assert why in answer.warnings[0]


def test_a_pod_is_written_as_a_whole_or_not_at_all() -> None:
    asks = pod(OURS)
    asks["spec"]["containers"].append({"name": "d", "resources": {"limits": {"nvidia.com/gpumem-percentage": 50}}})
    answer = ask(asks)
    assert answer.patch == []
    assert answer.warnings[0].startswith(
        "container d: volcano.sh/vgpu-memory-percentage is not written as a claim, nor is any share of this pod")


def test_a_share_without_cores_is_warned_of_and_a_pod_for_hamis_scheduler_is_ours_with_all_its_words() -> None:
    answer = ask(pod({"nvidia.com/gpu": 1}, schedulerName="hami-scheduler"))
    assert "takes all of them" in answer.warnings[0]
    found = patched(pod({"nvidia.com/gpu": 1}, schedulerName="hami-scheduler"), answer)
    assert found["spec"]["schedulerName"] == "volcano"
    assert shares(found) == [Share()]


@pytest.mark.parametrize("word", ["a container", "an annotation"])
def test_one_word_of_hamis_makes_all_of_the_pods_words_his(word: str) -> None:
    asks = pod({"nvidia.com/gpu": 1}, notes={"nvidia.com/use-gpuuuid": "GPU-1"} if word == "an annotation" else {})
    if word == "a container":
        asks["spec"]["containers"].append({"name": "d", "resources": {"limits": {"nvidia.com/gpumem": 100}}})
    found = written(asks)
    assert len(shares(found)) == len(asks["spec"]["containers"])
    assert found["spec"]["schedulerName"] == "volcano"


@pytest.mark.parametrize("broken", [
    {"metadata": {}, "spec": None}, {"metadata": {"annotations": None}, "spec": {"containers": None, "initContainers": {}}},
    {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {"limits": None, "claims": None}}]}},
])  # fmt: skip
def test_what_is_null_is_not_there(broken: Json) -> None:
    assert ask({**broken, "metadata": {**broken["metadata"], "name": "p"}}) == Answer()


def share_job(cores: str = "50") -> Json:
    limits = {**OURS, "volcano.sh/vgpu-cores": cores}
    plain = {"spec": {"containers": [{"name": "d"}]}}
    return job("j", task("a", template={"spec": pod(limits)["spec"]}), task("b", template=plain))


def test_the_tasks_of_a_job_claim_and_what_is_applied_again_or_changed_is_seen_as_that() -> None:
    path = "/jobclaims/mutate"
    stored = written(share_job(), path=path)
    first, second = (one["template"] for one in stored["spec"]["tasks"])
    assert shares(first) == [Share(1, 3000, 50)]
    assert second == share_job()["spec"]["tasks"][1]["template"]
    assert ask(stored, path=path).patch == []
    assert written(share_job(), old=stored, path=path) == stored
    assert written(share_job("10"), old=stored, path=path) != stored, "the admission of Jobs refuses it"
    assert ask(share_job(), old=share_job(), path=path).patch == [], "a Job that was made before stays"


@pytest.mark.parametrize("path", SHARES_TO_CLAIMS)
def test_nobody_is_asked_about_but_in_namespaces_that_say_so(path: str) -> None:
    _, found = configuration(BY_PATH[path], b"ca", namespace="volcano-system", scheduler="volcano")
    [hook] = found["webhooks"]
    chosen = hook["namespaceSelector"]["matchExpressions"]
    assert {"key": "pumice.io/claims", "operator": "In", "values": ["on"]} in chosen
    assert not BY_PATH[path].default
