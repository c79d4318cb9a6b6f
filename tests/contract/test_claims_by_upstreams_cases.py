"""The table cases of Kubernetes' allocator for structured parameters, asked of ours: ``tests/kube/cases`` hands them over, and
compares as upstream's own test does."""

from __future__ import annotations

import json
import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.claim_answers import ours
from kit.claim_worlds import World

from pumice.model.errors import BadInput

DIFFERENT = {
    r"list-attributes-.*": "attributes with lists are behind a gate that Kubernetes 1.36 has off",
    r".*disabled.*|binding-conditions-without-feature-gate": "a gate is off that Kubernetes 1.36 has on",
    r"interrupt.*": "Go's contexts, and a lister of classes that fails",
    r"consumable-capacity-dedicated-device-with-multiple-.*|allow-multiple-allocations-not-allocate-dedicated-device-which-change-.*":
        "a slice that the API server refuses: a request policy on a device of one allocation",
    r"consumable-capacity-multi-allocatable-device-allocation-mode-all-in-use-insufficient":
        "All leaves out shared devices that are full",
    r"with-constraint-not-matching-int-attribute-all-devices": "All under a constraint is an error at the first try",
}  # fmt: skip
"""Cases that ours answers otherwise by design, by their names. The last two are rows of docs/reference/claims.md."""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return what ours says. The slices of a case may bear one name, which an API server would not let them."""
    slices = question["slices"] or []
    for number, one in enumerate(slices):
        one["metadata"]["name"] += f"-{number}"
    node = question["node"]
    node["metadata"].setdefault("labels", {})
    world = SimpleNamespace(slices=slices, seen=slices, in_use=question["inUse"] or [], classes=question["classes"] or [],
                            claims=question["claims"] or [], node=node)  # fmt: skip
    try:
        kind, said = ours(cast(World, world))
    except BadInput as error:
        kind, said = "error", str(error)
    return {"kind": kind, "allocations": said} if kind == "ok" else {"kind": kind, "error": said}


def test_the_table_cases_of_kubernetes_are_answered_as_there_but_for_those_that_are_listed() -> None:
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"), "claim-cases")
    if not program.exists():
        assert "PUMICE_CI" not in os.environ, "make kube builds the cases"
        pytest.skip("no claim-cases in KUBEBUILDER_ASSETS: make kube")
    (asked, asks), (answers, answered) = os.pipe(), os.pipe()
    command = ["bash", "-c", f"exec '{program}' -test.v 3>&{asks} 4<&{answers}"]
    with ThreadPoolExecutor(1) as aside, subprocess.Popen(
        command, pass_fds=(asks, answers), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        os.close(asks)
        os.close(answers)
        assert running.stdout is not None
        said = aside.submit(running.stdout.read)
        number = 0
        with open(asked, "rb") as questions, open(answered, "wb", buffering=0) as out:
            for line in questions:
                number += 1
                out.write(json.dumps(answer(json.loads(line))).encode() + b"\n")
        text = said.result()
    ended = re.findall(r"^ {4}--- (PASS|FAIL|SKIP): TestCases/(\S+)", text, re.MULTILINE)
    failed = {name for how, name in ended if how == "FAIL"}
    met = {pattern: [name for name in failed if re.fullmatch(pattern, name)] for pattern in DIFFERENT}
    unlisted = failed - {name for names in met.values() for name in names}
    assert number >= 209, "not all cases were asked"
    assert not unlisted, "\n".join(_of(text, name) for name in sorted(unlisted))
    assert all(met.values()), f"listed, and answered as there: {[pattern for pattern, names in met.items() if not names]}"
    assert sum(how == "PASS" for how, _ in ended) >= 185, "hardly a case was compared"
    assert not [name for how, name in ended if how == "SKIP"]


def _of(text: str, name: str) -> str:
    """Return what was printed of a case, without the steps of Kubernetes' own search."""
    at = text.index(f"=== RUN   TestCases/{name}\n")
    lines = text[at : text.find("=== RUN", at + 10)].splitlines()
    return "\n".join(line for line in lines if "allocator_experimental.go" not in line)[:2000]
