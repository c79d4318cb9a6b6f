"""What a tenant must not say, by the pure rules; the same table is held against the API server's policies (tests/contract)."""

from __future__ import annotations

from typing import Any

import pytest
from kit.manifests import manifest
from kit.tenant_cases import CASES, Case, env, plain, share

from pumice.admission import tenants
from pumice.admission.review import Request, Settings


def ask(spec: dict[str, Any]) -> Request:
    return Request("CREATE", "ns1", "p", {"metadata": {"name": "p"}, "spec": spec}, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_what_a_tenant_says_is_stored_or_refused_with_the_reason(case: Case) -> None:
    refused = tenants.validate(ask(case.spec), None, Settings()).refused  # type: ignore[arg-type]
    assert (case.refused in refused) if case.refused else refused == "", refused


def test_no_two_cases_have_one_title() -> None:
    assert len({case.title for case in CASES}) == len(CASES)


def test_the_policies_speak_the_words_of_the_rules() -> None:
    first, *_ = [obj for obj in manifest("tenant-limits.yml") if obj["kind"] == "ValidatingAdmissionPolicy"]
    assert [validation["message"] for validation in first["spec"]["validations"]] == [message for _, message in tenants.RULES]


def test_a_container_without_cards_is_told_that_it_sees_none_and_nobody_else() -> None:
    def voided(spec: dict[str, Any]) -> list[dict[str, Any]]:
        return tenants.mutate(ask(spec), None, Settings()).patch  # type: ignore[arg-type]

    void = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    assert voided(plain()) == [{"op": "add", "path": "/spec/containers/0/env", "value": [void]}]
    before = env("A", "b")
    assert voided(plain(**before))[0]["value"] == [*before["env"], void]
    assert voided(share()) == []
    assert voided(plain(resources={"limits": {"nvidia.com/gpu": 1}})) == []
    assert voided(plain(**env("NVIDIA_VISIBLE_DEVICES", "none"))) == []
