"""Work that the text of an expression, and the lengths of what it is given, do not tell."""

from __future__ import annotations

import pytest

from pumice.cel.evaluation import compiled
from pumice.cel.running import OverBudget
from pumice.cel.values import CelError

NAMES = frozenset(("self",))
_DOUBLED = "cel.bind(a0, [1, 1], " + "".join(f"cel.bind(a{n}, [a{n - 1}, a{n - 1}], " for n in range(1, 40)) + "{}" + ")" * 40


@pytest.mark.parametrize("text", [
    _DOUBLED.format("a39 == a39"), _DOUBLED.format("a39 in [a39]"), _DOUBLED.format("a39.flatten(50)"),
    _DOUBLED.format("'%s'.format([a39])"), "sets.contains(lists.range(10000), lists.range(10000))",
    "lists.range(10000).distinct()", "lists.range(10000).map(i, self.long).join('')", "self.long.findAll('.')",
    "'" + "%s" * 3000 + "'.format(lists.range(3000).map(i, self.long))",
    "lists.range(10000).all(i, !self.long.matches('(x?)*y'))",
    "lists.range(10000).all(i, lists.range(10000).sum() > 0)", "lists.range(1000).all(i, lists.range(1000).all(j, i + j >= 0))",
])  # fmt: skip
def test_work_that_the_lengths_of_arguments_do_not_tell_is_paid_for_before_it_is_done(text: str) -> None:
    with pytest.raises(OverBudget):
        compiled(text, NAMES)({"self": {"long": "x" * 1_000_000}})


@pytest.mark.parametrize("text", [
    "1" * 5000 + " > 0", "1" * 5000 + "u > 0u", "optional.of([1]) in {'a': 1}", "{'a': 1}[optional.of([1])]",
    "'%.999999999f'.format([1.0])", "duration('99999999999999999999h')",
])  # fmt: skip
def test_a_number_without_room_and_a_key_that_is_none_are_refused_as_errors_of_the_expression(text: str) -> None:
    with pytest.raises(CelError):
        compiled(text, NAMES)({"self": {}})


@pytest.mark.parametrize("text", ["[1].all(self, self > 0)", "cel.bind(self, 2, self > 1)", "[1].all(self, x, x > self)",
                                  "optional.of(1).optMap(self, self + 1).value() == 2"])  # fmt: skip
def test_a_loop_may_call_its_variable_as_the_object_is_called(text: str) -> None:
    assert compiled(text, NAMES)({"self": {}}) is True
