"""The values of expressions, and their errors."""

from __future__ import annotations

from typing import Any

import pytest
from kit.expressions import value

from pumice.cel.values import CelError, Message, Optional, Uint


@pytest.mark.parametrize(("text", "expected"), [
    ("1 + 2 * 3 - 4", 3), ("-7 / 2", -3), ("-7 % 2", -1), ("7.0 / 2.0", 3.5), ("1 == 1.0 && 2u == 2", True), ("2u + 3u", Uint(5)),
    ("0x1F", 31), ("1e3", 1000.0), ("-9223372036854775808", -(2**63)), ("true == 1", False), ("null == self.none", True),
    ("'a' + \"b\" + r'\\n'", "ab\\n"), ("'\\u00e4\\x41\\101\\n'", "äAA\n"), ('"""a\nb"""', "a\nb"), ("b'a' + b'b'", b"ab"),
    ("[1] + [2]", [1, 2]), ("{'a': 1}.a", 1), ("{'a': 1}['a']", 1), ("2 in [1, 2.0]", True), ("'k/x' in self.labels", True),
    ("self.size > 2 ? 'big' : 'small'", "big"), ("false && self.nothing == 1", False), ("self.nothing == 1 || true", True),
    ("!!true", True), ("--1", 1), ("has(self.size) && !has(self.nothing)", True), ("later + 1", 8), ("type(1) == int", True),
    ("self.?nothing.orValue(3)", 3), ("self.labels[?'k/x'].value()", "v"), ("optional.none().or(optional.of(2)).value()", 2),
    ("self.?nothing.?more.hasValue()", False), ("self.?size.optMap(s, s + 1)", Optional(True, 4)),
    ("self.words.all(w, w < 'c')", True), ("self.words.exists(w, w == 'b')", True), ("self.words.exists_one(w, w == 'b')", True),
    ("self.words.map(w, w + w)", ["aa", "bb"]), ("[1, 2, 3].map(n, n > 1, n * n)", [4, 9]),
    ("[1, 2, 3].filter(n, n != 2)", [1, 3]),
    ("self.labels.all(k, k.startsWith('k'))", True), ("[5, 6].all(i, v, v == i + 5)", True),
    ("[3, 4].transformList(i, v, i * v)", [0, 4]), ("{'a': 1}.transformMap(k, v, v + 1)", {"a": 2}),
    ("[1, 'x'].exists(e, e > 0)", True), ("cel.bind(n, self.size + 1, n * n)", 16),
    ("self.parts.exists(p, has(p.limits) && quantity(p.limits.mem).isGreaterThan(quantity('2Gi')))", True),
    ("JSONPatch{op: 'add', path: '/a'}", Message("JSONPatch", {"op": "add", "path": "/a"})),
])  # fmt: skip
def test_an_expression_comes_to(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(("text", "said"), [
    ("1 +", "Syntax error"), ("a b", "Syntax error"), ("'open", "Syntax error"), ("'\\q'", "no escape"), ("", "Syntax error"),
    ("nobody", "undeclared reference to 'nobody'"), ("nothing(1)", "undeclared reference to 'nothing'"),
    ("self.foo()", "undeclared reference to 'foo'"), ("[1].all(x, y)", "undeclared reference to 'y'"), ("has(self)", "has()"),
    ("Pod{a: 1}", "undeclared type 'Pod'"), ("self.nothing", "no such key: nothing"), ("[1][1]", "index out of bounds: 1"),
    ("1 + 'a'", "no such overload"), ("1 ? 2 : 3", "is no bool"), ("'a' && true", "is no bool"),
    ("[1] < [2]", "no such overload"),
    ("9223372036854775807 + 1", "overflow"), ("0u - 1u", "overflow"), ("-(-9223372036854775808)", "overflow"), ("1 / 0", "zero"),
    ("1 % 0", "zero"), ("'a'.size(1)", "no such overload"), ("self.allowed()", "no such overload"),
    ("self.size.all(x, true)", "no such overload"), ("optional.none().value()", "dereference"),
])  # fmt: skip
def test_what_means_nothing_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(CelError) as problem:
        value(text)
    assert said in str(problem.value)
