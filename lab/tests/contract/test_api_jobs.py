"""Validation of a Job (batch/v1): failures, indexes, successes and its controller, on both servers alike."""

from __future__ import annotations

from typing import Any

import pytest
from kit.control_plane import Api

INDEXED = {"completionMode": "Indexed", "completions": 3}
PER_INDEX = {**INDEXED, "backoffLimitPerIndex": 1}


def job(name: str = "j", policy: str | None = "Never", **spec: Any) -> dict[str, Any]:
    pod = {"containers": [{"name": "c", "image": "i"}], **({"restartPolicy": policy} if policy else {})}
    return {"metadata": {"name": name}, "spec": {"template": {"spec": pod}, **spec}}


def on_failure(**rule: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [{"action": "FailJob", **rule}]}}


def codes(*values: int, operator: str = "In", **more: Any) -> dict[str, Any]:
    return {"onExitCodes": {"operator": operator, "values": list(values), **more}}


def succeeds(**rule: Any) -> dict[str, Any]:
    return {**INDEXED, "successPolicy": {"rules": [rule]}}


REFUSED: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"maxFailedIndexes": 1, **INDEXED}, [("Required", "backoffLimitPerIndex")]),
    ({"backoffLimitPerIndex": 1}, [("Invalid", "backoffLimitPerIndex")]),
    ({**PER_INDEX, "backoffLimitPerIndex": -1}, [("Invalid", "backoffLimitPerIndex")]),
    ({**PER_INDEX, "maxFailedIndexes": 4}, [("Invalid", "maxFailedIndexes")]),
    ({**PER_INDEX, "completions": 100_001}, [("Required", "maxFailedIndexes")]),
    ({**PER_INDEX, "completions": 100_001, "maxFailedIndexes": 10_001, "parallelism": 10_001},
     [("Invalid", "parallelism"), ("Invalid", "maxFailedIndexes")]),
    ({**INDEXED, "parallelism": 100_001}, [("Invalid", "parallelism")]),
    ({"completionMode": "Indexed", "parallelism": 1}, [("Required", "completions")]),
    ({"completionMode": "Other"}, [("NotSupported", "completionMode")]),
    ({"managedBy": "nobody"}, [("Invalid", "managedBy")]),
    ({"managedBy": "example.com/" + "x" * 60}, [("TooLong", "managedBy")]),
    ({"managedBy": "Example/ x"}, [("Invalid", "managedBy"), ("Invalid", "managedBy")]),
    ({"podReplacementPolicy": "Never"}, [("NotSupported", "podReplacementPolicy")]),
    ({"podReplacementPolicy": "TerminatingOrFailed", **on_failure(**codes(1))}, [("NotSupported", "podReplacementPolicy")]),
    (on_failure(), [("Invalid", "podFailurePolicy.rules[0]")]),
    (on_failure(**codes(1), onPodConditions=[{"type": "X"}]), [("Invalid", "podFailurePolicy.rules[0]")]),
    (on_failure(**codes(0)), [("Invalid", "podFailurePolicy.rules[0].onExitCodes.values[0]")]),
    (on_failure(**codes(2, 1, 1)), [("Invalid", "podFailurePolicy.rules[0].onExitCodes.values"),
                                    ("Duplicate", "podFailurePolicy.rules[0].onExitCodes.values[2]")]),
    (on_failure(**codes()), [("Invalid", "podFailurePolicy.rules[0].onExitCodes.values")]),
    (on_failure(**codes(*range(1, 257))), [("TooMany", "podFailurePolicy.rules[0].onExitCodes.values")]),
    (on_failure(**codes(1, operator="Is")), [("NotSupported", "podFailurePolicy.rules[0].onExitCodes.operator")]),
    (on_failure(**codes(1, containerName="d")), [("Invalid", "podFailurePolicy.rules[0].onExitCodes.containerName")]),
    (on_failure(action="FailIndex", **codes(1)), [("Invalid", "podFailurePolicy.rules[0].action")]),
    (on_failure(action="Other", **codes(1)), [("NotSupported", "podFailurePolicy.rules[0].action")]),
    (on_failure(action="", **codes(1)), [("Required", "podFailurePolicy.rules[0].action")]),
    (on_failure(onPodConditions=[{"type": "no good", "status": "Perhaps"}]),
     [("Invalid", "podFailurePolicy.rules[0].onPodConditions[0].type"),
      ("NotSupported", "podFailurePolicy.rules[0].onPodConditions[0].status")]),
    ({"podFailurePolicy": {"rules": [{"action": "Count", **codes(1)}] * 21}}, [("TooMany", "podFailurePolicy.rules")]),
    ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, [("Invalid", "successPolicy")]),
    ({**INDEXED, "successPolicy": {"rules": []}}, [("Required", "successPolicy.rules")]),
    (succeeds(), [("Required", "successPolicy.rules[0]")]),
    (succeeds(succeededCount=4), [("Invalid", "successPolicy.rules[0].succeededCount")]),
    (succeeds(succeededCount=-1), [("Invalid", "successPolicy.rules[0].succeededCount")]),
    (succeeds(succeededCount=2, succeededIndexes="1"), [("Invalid", "successPolicy.rules[0].succeededCount")]),
    (succeeds(succeededIndexes="1,0"), [("Invalid", "successPolicy.rules[0].succeededIndexes")]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wrong"), REFUSED)
def test_a_job_that_contradicts_itself_is_refused_by_its_field(
    api: Api, namespace: str, spec: dict[str, Any], wrong: list[tuple[str, str]]
) -> None:
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(**spec))
    assert answer.code == 422, answer.json
    assert causes(answer.json, "spec.") == sorted(wrong)
    cron = {"metadata": {"name": "c"}, "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": job(**spec)["spec"]}}}
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/cronjobs", cron)
    assert (answer.code, causes(answer.json, "spec.jobTemplate.spec.")) == (422, sorted(wrong))


@pytest.mark.parametrize(("text", "why"), [
    ("0-3", 'too large index: "3"'), ("x", 'cannot convert string to integer for index: "x"'),
    ("0,", 'cannot convert string to integer for index: ""'), ("0-1-2", 'the fragment "0-1-2" violates the requirement'),
    ("1-0", "non-increasing order, previous: 1, current: 0"), ("1,1", "non-increasing order, previous: 1, current: 1"),
])  # fmt: skip
def test_indexes_that_cannot_be_read_are_told_by_what_is_wrong_with_them(
    api: Api, namespace: str, text: str, why: str
) -> None:
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(**succeeds(succeededIndexes=text)))
    (cause,) = answer.json["details"]["causes"]
    assert (cause["field"], why in cause["message"]) == ("spec.successPolicy.rules[0].succeededIndexes", True)


@pytest.mark.parametrize(("policy", "spec", "why"), [
    (None, {}, "FieldValueRequired"), ("Always", {}, "FieldValueRequired"),
    ("OnFailure", on_failure(**codes(1)), "FieldValueInvalid"),
])  # fmt: skip
def test_a_job_restarts_its_containers_on_failure_or_never(
    api: Api, namespace: str, policy: str | None, spec: dict[str, Any], why: str
) -> None:
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(policy=policy, **spec))
    (cause,) = answer.json["details"]["causes"]
    assert (answer.code, cause["reason"], cause["field"]) == (422, why, "spec.template.spec.restartPolicy")


def test_an_indexed_job_needs_room_for_the_index_in_the_names_of_its_pods(api: Api, namespace: str) -> None:
    answer = api.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job(name="x" * 62, **INDEXED))
    assert (answer.code, [cause["field"] for cause in answer.json["details"]["causes"]]) == (422, ["metadata.name"])


def test_what_a_job_leaves_out_is_filled_in_by_what_it_says(api: Api, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    spec = api.create(jobs, job(**PER_INDEX, **on_failure(onPodConditions=[{"type": "DisruptionTarget"}])))["spec"]
    assert (spec["backoffLimit"], spec["podReplacementPolicy"]) == (2**31 - 1, "Failed")
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert api.create(jobs, job(name="k"))["spec"]["podReplacementPolicy"] == "TerminatingOrFailed"


@pytest.mark.parametrize(("change", "field"), [
    ({"managedBy": "example.com/b"}, "managedBy"),
    ({"backoffLimitPerIndex": 2}, "backoffLimitPerIndex"),
    ({"successPolicy": {"rules": [{"succeededCount": 2}]}}, "successPolicy"),
    ({"podFailurePolicy": {"rules": [{"action": "Ignore", **codes(1)}]}}, "podFailurePolicy"),
    ({"completions": 2}, "completions"),
    ({"completions": 2, "parallelism": 2}, None),
    ({"maxFailedIndexes": 2}, None),
    ({"podReplacementPolicy": "Failed"}, None),
])  # fmt: skip
def test_what_a_job_has_said_of_its_end_stays(api: Api, namespace: str, change: dict[str, Any], field: str | None) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    policies = {**on_failure(**codes(1)), "successPolicy": {"rules": [{"succeededCount": 1}]}}
    api.create(jobs, job(**PER_INDEX, managedBy="example.com/a", **policies))
    answer = api.call("PATCH", f"{jobs}/j", {"spec": change}, media="application/merge-patch+json")
    if field is None:
        assert answer.code == 200, answer.json
    else:
        assert (answer.code, causes(answer.json, "spec.")) == (422, [("Invalid", field)])


T1, T2, T3 = (f"2026-01-01T00:00:0{second}Z" for second in (1, 2, 3))


def true(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


COMPLETE = {"conditions": true("SuccessCriteriaMet", "Complete"), "startTime": T1, "completionTime": T2}
FAILED = {"conditions": true("FailureTarget", "Failed"), "startTime": T1}


@pytest.mark.parametrize(("before", "after", "wrong"), [
    ({}, COMPLETE, []), ({}, FAILED, []), ({"conditions": true("FailureTarget")}, FAILED, []),
    ({}, {"active": -1}, [("Invalid", "active")]),
    ({}, {"active": 1, "ready": 2}, [("Invalid", "ready")]),
    ({}, {"startTime": T1, "conditions": true("Failed")}, [("Invalid", "conditions")]),
    ({}, {**COMPLETE, "conditions": true("Complete")}, [("Invalid", "conditions")]),
    ({}, {"conditions": true("SuccessCriteriaMet", "FailureTarget")}, [("Invalid", "conditions")]),
    ({"conditions": true("FailureTarget")}, {"conditions": []}, [("Invalid", "conditions")]),
    ({"conditions": true("SuccessCriteriaMet")}, {"conditions": []}, [("Invalid", "conditions")]),
    ({}, {**COMPLETE, "conditions": true("SuccessCriteriaMet", "FailureTarget", "Complete")}, [("Invalid", "conditions")] * 2),
    ({}, {**COMPLETE, "completionTime": None}, [("Required", "completionTime")]),
    ({}, {**COMPLETE, "startTime": T3}, [("Invalid", "completionTime")]),
    ({}, {"completionTime": T2}, [("Invalid", "completionTime")]),
    (COMPLETE, {"completionTime": T3}, [("Invalid", "completionTime")]),
    ({}, {**FAILED, "startTime": None}, [("Required", "startTime")]),
    ({"startTime": T1}, {"startTime": T2}, [("Invalid", "startTime")]),
    ({}, {**FAILED, "active": 1}, [("Invalid", "active")]),
    ({}, {**FAILED, "terminating": 1}, [("Invalid", "terminating")]),
    ({}, {**FAILED, "uncountedTerminatedPods": {"failed": ["a"]}}, [("Invalid", "uncountedTerminatedPods")]),
    ({}, {"uncountedTerminatedPods": {"failed": ["a", ""], "succeeded": ["a"]}},
     [("Duplicate", "uncountedTerminatedPods.failed[0]"), ("Invalid", "uncountedTerminatedPods.failed[1]")]),
    ({"failed": 2}, {"failed": 1}, [("Invalid", "failed")]),
    ({"succeeded": 2}, {"succeeded": 1}, [("Invalid", "succeeded")]),
    ({}, {"completedIndexes": "0-3"}, [("Invalid", "completedIndexes")]),
    ({}, {"failedIndexes": "x"}, [("Invalid", "failedIndexes")]),
    ({}, {"completedIndexes": "0,1", "failedIndexes": "1-2"}, [("Invalid", "failedIndexes")]),
    ({"completedIndexes": "0"}, {"failedIndexes": "1,2"}, []),
])  # fmt: skip
def test_whoever_manages_a_job_writes_no_status_that_contradicts_itself(
    api: Api, namespace: str, before: dict[str, Any], after: dict[str, Any], wrong: list[tuple[str, str]]
) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.create(jobs, job(**PER_INDEX, parallelism=1, managedBy="example.com/a"))
    api.merge(f"{jobs}/j/status", {"status": before})
    answer = api.call("PATCH", f"{jobs}/j/status", {"status": after}, media="application/merge-patch+json")
    assert answer.code == (422 if wrong else 200), answer.json
    assert not wrong or causes(answer.json, "status.") == sorted(wrong)


def test_indexes_are_told_of_indexed_jobs_alone(api: Api, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.create(jobs, job(managedBy="example.com/a"))
    wrong = {"status": {"completedIndexes": "0", "failedIndexes": ""}}
    answer = api.call("PATCH", f"{jobs}/j/status", wrong, media="application/merge-patch+json")
    assert causes(answer.json, "status.") == [("Invalid", "completedIndexes"), ("Invalid", "failedIndexes")]


def causes(status: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    return sorted((cause["reason"].removeprefix("FieldValue"), cause["field"].removeprefix(prefix))
                  for cause in status["details"]["causes"])  # fmt: skip
