"""Templates of pods whose shares are claims: which are missing, whose they are, and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from pumice.effects.vocabulary import Patch
from pumice.wire.names import SHARE_CLAIMS
from pumice.wire.objects import Meta, OwnerReference
from pumice.wire.share_claims import Share, render
from pumice_jobs.controllers.share_claims import Named, SharingPod, Spec, Status, missing, shared, wanted

SHARE = Share(1, 2048, 50)


def pod(*, owner: str = "", phase: str = "Pending", said: str | None = None, made: bool = False, **meta: Any) -> SharingPod:
    notes = {SHARE_CLAIMS: render({"t": SHARE, "not-named": SHARE}) if said is None else said}
    job = OwnerReference("Job", "j", owner, "batch/v1", controller=True)
    owners = [OwnerReference("Node", "n", "node"), job] if owner else []
    found = Meta("p", "n", "pod", annotations=notes, owner_references=owners, **meta)
    statuses = [Named("t")] if made else []
    return SharingPod(found, Spec([Named("t", "t"), Named("theirs", "other")]), Status(phase, statuses))


def test_a_template_is_missing_as_long_as_the_pods_claim_is_not_made() -> None:
    assert missing(pod()) == {"t": SHARE}
    assert missing(pod(made=True)) == {}
    assert missing(pod(phase="Failed")) == missing(pod(deletion_timestamp="2026-01-01T00:00:00Z")) == {}
    assert missing(SharingPod()) == {}


@pytest.mark.parametrize("said", ["[", '{"t": {"adminAccess": true}}', '{"t": {"memory": "much"}}'])
def test_an_annotation_that_is_none_of_ours_is_told_and_makes_nothing(said: str) -> None:
    with pytest.raises(ValueError, match=SHARE_CLAIMS):
        missing(pod(said=said))


def test_a_template_goes_with_the_pods_workload_else_with_the_pod() -> None:
    [alone] = wanted(pod().metadata, "t", SHARE).obj["metadata"]["ownerReferences"]
    assert alone == {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod"}
    [owned] = wanted(pod(owner="u").metadata, "t", SHARE).obj["metadata"]["ownerReferences"]
    assert owned == {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}


def test_a_template_that_is_there_gets_one_more_owner_and_one_that_asks_something_else_is_left_alone() -> None:
    first, second = wanted(pod(owner="u1").metadata, "t", SHARE), wanted(pod(owner="u2").metadata, "t", SHARE)
    there = {**first.obj, "metadata": {**first.obj["metadata"], "uid": "template", "resourceVersion": "7"}}
    exactly = {"deviceClassName": "gpu.pumice.io", "allocationMode": "ExactCount", "count": 1,
               "capacity": {"requests": {"memory": "2Gi", "cores": "50"}}}  # fmt: skip
    there["spec"] = {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}  # as the API server has it
    assert shared(there, first) is None
    step = shared(there, second)
    assert isinstance(step, Patch)
    assert [one["uid"] for one in step.body["metadata"]["ownerReferences"]] == ["u1", "u2"]
    assert (step.body["metadata"]["resourceVersion"], step.uid) == ("7", "template")
    exactly["count"] = 2
    assert "asks for something else" in str(shared(there, first))
    exactly["count"] = 1
    del there["metadata"]["labels"]
    assert "asks for something else" in str(shared(there, first)), "a template of a user's own"
