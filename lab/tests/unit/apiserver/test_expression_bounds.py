"""Expressions always end, whatever somebody has written."""

from __future__ import annotations

import contextlib

import pytest
from kit.expressions import value

from pumice.cel.running import Budget, OverBudget
from pumice.cel.values import CelError
from pumice_lab.apiserver.crd.rule_checks import bad_rules
from pumice_lab.apiserver.strategies.expressions import PolicyStrategy, WebhookStrategy


@pytest.mark.parametrize("text", [
    "lists.range(10000).all(a, lists.range(10000).all(b, a == a))",
    "lists.range(1000).map(a, lists.range(1000).map(b, lists.range(1000)))",
    "lists.range(10000).map(a, 'xxxxxxxxxxxxxxxxxxxxxxxx'.replace('', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy') + 'z')",
    "cel.bind(s, 'xxxxxxxxxx', lists.range(9999).all(a, (s + s + s + s + s + s + s + s + s + s + s + s + s + s + s + s) != ''))",
])  # fmt: skip
def test_what_would_go_on_is_cut_off(text: str) -> None:
    with pytest.raises(OverBudget):
        value(text, Budget(200_000))


@pytest.mark.parametrize("text", ["(" * 5000 + "1" + ")" * 5000, "!" * 40_000 + "true", "[" * 500 + "]" * 500, "-" * 3000 + "1",
                                  "a." * 2000 + "b", "1" + " + 1" * 3000, "x" * 40_000])  # fmt: skip
def test_a_monstrous_text_is_refused_or_read_and_never_a_crash(text: str) -> None:
    with contextlib.suppress(CelError):
        value(text)


def test_more_expressions_than_a_server_can_read_beside_its_work_are_refused_unread() -> None:
    rules = [{"rule": "self.all(x, x == 1)" + " " * 9000} for _ in range(10)]
    (problem,) = bad_rules({"type": "object", "x-kubernetes-validations": rules}, "schema")
    assert "characters together" in problem.text
    spec = {"validations": [{"expression": "true" + " " * 9000} for _ in range(10)]}
    (problem,) = PolicyStrategy().validate({"spec": spec})
    assert "characters together" in problem.text
    hooks = [{"matchConditions": [{"expression": "true" + " " * 9000}]} for _ in range(10)]
    (problem,) = WebhookStrategy().validate({"webhooks": hooks})
    assert "characters together" in problem.text
