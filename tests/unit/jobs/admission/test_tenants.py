"""Forbidden settings of a tenant by the pure rules; the same table is held against the API server's policies (tests/contract)."""

from __future__ import annotations

from typing import Any

import pytest
from kit.manifests import manifest
from kit.tenant_cases import CASES, VOID, VOID_CASES, Case, Void, env, plain

from pumice_jobs.admission import tenants
from pumice_jobs.admission.review import Request, Settings
from pumice_jobs.admission.rules import BY_PATH, configuration


def ask(spec: dict[str, Any]) -> Request:
    return Request("CREATE", "ns1", "p", {"metadata": {"name": "p"}, "spec": spec}, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_what_a_tenant_says_is_stored_or_refused_with_the_reason(case: Case) -> None:
    refused = tenants.validate(ask(case.spec), None, Settings()).refused  # type: ignore[arg-type]
    assert (case.refused in refused) if case.refused else refused == "", refused


@pytest.mark.parametrize(
    ("notes", "limits", "said"),
    [
        ({"burst-memory": "8000", "burst-cores": "80"}, {"vgpu-number": 1, "vgpu-memory": 3000, "vgpu-cores": 30}, ""),
        ({"burst-memory": "8000", "burst-cores": "80"}, {"vgpu-number": 1, "vgpu-memory-percentage": 30}, ""),  # of what size?
        ({"burst-memory": "3000"}, {"vgpu-number": 1, "vgpu-memory": 3000}, "container c: pumice.io/burst-memory: 3000"),
        ({"burst-memory": "8 GiB"}, {"vgpu-number": 1, "vgpu-memory": 3000}, "'8 GiB' is not a whole number above 0"),
        ({"burst-cores": "30"}, {"vgpu-number": 1, "vgpu-cores": 50}, "30 is not above the 50 that were asked for"),
        ({"burst-cores": "0"}, {"vgpu-number": 1, "vgpu-cores": 50}, "is not a percentage from 1 to 100"),
        ({"burst-cores": "80"}, {"vgpu-number": 1, "vgpu-cores": 100}, "has no core limit to exceed"),
        ({"burst-cores": "80"}, {}, "claims know none"),
    ],
)
def test_a_burst_that_nobody_could_serve_is_refused(notes: dict[str, str], limits: dict[str, int], said: str) -> None:
    spec = plain(resources={"limits": {f"volcano.sh/{name}": amount for name, amount in limits.items()}})
    pod = {"metadata": {"annotations": {f"pumice.io/{name}": value for name, value in notes.items()}}, "spec": spec}
    refused = "; ".join(tenants.refusals(pod))
    assert (said in refused) if said else refused == "", refused


def test_no_two_cases_have_one_title() -> None:
    assert len({case.title for case in CASES}) == len(CASES)


def test_the_policies_speak_the_words_of_the_rules() -> None:
    first, *_ = [obj for obj in manifest("tenant-limits.yml") if obj["kind"] == "ValidatingAdmissionPolicy"]
    said = [*(message for _, message in tenants.RULES), tenants.NAMES_NODE]
    assert [validation["message"] for validation in first["spec"]["validations"]] == said


@pytest.mark.parametrize("case", VOID_CASES, ids=lambda case: case.title)
@pytest.mark.parametrize("section", ["containers", "initContainers"])
def test_a_container_that_is_given_no_card_is_told_that_it_sees_none_and_nobody_else(section: str, case: Void) -> None:
    """An amount of 0 gives no card: no plugin is asked, and the image's own variable would stand."""
    pod = {"containers": [], section: [{"name": "c", **case.container}]}
    reported = [{"op": "add", "path": f"/spec/{section}/0/env", "value": [*case.container.get("env", ()), VOID]}]
    assert tenants.mutate(ask(pod), None, Settings()).patch == (reported if case.void else [])  # type: ignore[arg-type]


def test_rules_and_policies_leave_the_same_namespaces_out() -> None:
    ours = [configuration(BY_PATH[path], b"", namespace="volcano-system")[1]["webhooks"][0]["namespaceSelector"]
            for path in ("/tenants/validate", "/tenants/mutate")]  # fmt: skip
    policies = [obj["spec"]["matchResources"]["namespaceSelector"] for file in ("tenant-limits.yml", "tenant-void.yml")
                for obj in manifest(file) if "matchResources" in obj["spec"]]  # fmt: skip
    assert len(policies) == 2
    for selector in (*ours, *policies):
        names, privileged = selector["matchExpressions"]
        assert sorted(names["values"]) == sorted([*tenants.RUN_THE_NODE, "volcano-system"])
        assert privileged == {"key": "pod-security.kubernetes.io/enforce", "operator": "NotIn", "values": ["privileged"]}


def test_a_container_for_looking_into_a_pod_sees_no_card() -> None:
    """No plugin is ever asked for it. One that was added before stays as it is: the API server would refuse any change."""
    old = {"containers": [{"name": "c"}], "ephemeralContainers": [{"name": "before"}]}
    new = {**old, "ephemeralContainers": [*old["ephemeralContainers"], {"name": "d"}, {"name": "e", **env("A", "b")},
                                          {"name": "f", "env": [VOID]}]}  # fmt: skip
    request = Request("UPDATE", "ns1", "p", {"spec": new}, {"spec": old})
    assert tenants.mutate(request, None, Settings()).patch == [  # type: ignore[arg-type]
        {"op": "add", "path": "/spec/ephemeralContainers/1/env", "value": [VOID]},
        {"op": "add", "path": "/spec/ephemeralContainers/2/env", "value": [*env("A", "b")["env"], VOID]},
    ]


class Namespaces:
    """A view of one namespace, ``ns1``."""

    def __init__(self, **said: str) -> None:
        self._said = said

    def namespace(self, name: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "annotations": {f"pumice.io/{key}": text for key, text in self._said.items()}}}


@pytest.mark.parametrize(("queue", "fine"), [
    ("", True), ("default", True), ("research", True), ("nightly", True), ("sales", False),
])  # fmt: skip
def test_a_namespace_that_names_its_queues_uses_no_other_teams(queue: str, fine: bool) -> None:
    pod = {"metadata": {"annotations": {"scheduling.volcano.sh/queue-name": queue}}, "spec": plain()}

    def refused(view: Any) -> str:
        return tenants.validate(Request("CREATE", "ns1", "p", pod, {}), view, Settings()).refused

    assert ("none of this namespace's" in refused(Namespaces(queues="research, nightly"))) != fine
    assert refused(Namespaces()) == refused(Namespaces(queues="")) == ""
