"""What expressions come to, what they refuse, and that they always end."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from pumice.cluster.apiserver.crd.rule_checks import bad_rules
from pumice.cluster.apiserver.strategies.expressions import PolicyStrategy
from pumice.cluster.cel.evaluation import compiled
from pumice.cluster.cel.running import Budget, OverBudget
from pumice.cluster.cel.values import CelError, Message, Optional, Uint

SELF = {
    "name": "n", "size": 3, "ratio": 0.5, "words": ["a", "b"], "empty": [], "amount": "3Gi", "none": None,
    "labels": {"k/x": "v"}, "parts": [{"name": "a", "limits": {"mem": "3Gi"}}, {"name": "b"}],
}  # fmt: skip
NAMES = frozenset(("self", "later"))
WORDS = """
self . size ? : ( ) [ ] { } , 1 2u 1.5 'a' b'a' && || ! - + * / % == < has( .all( x .map( .? [? null true
size( optional.of( .orValue( type( duration('1s') timestamp('2026-01-01T00:00:00Z') quantity('1') .add(
string( int( .split( .join( .matches( .format( cel.bind(x, math.greatest( .sum() .max() ip('::1') .family()
Object{ a: self.words self.labels self.parts self.name self.none .getHours() .charAt(
"""


def value(text: str, budget: Budget | None = None) -> Any:
    return compiled(text, NAMES)({"self": SELF, "later": lambda: 7}, budget)


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
    ("quantity('1500m').add(quantity('500m')).asInteger()", 2), ("quantity('1Ki').compareTo(quantity('1k'))", 1),
    ("isQuantity('3GB')", False), ("duration('1h30m') == duration('90m')", True), ("duration('1m').getSeconds()", 60),
    ("duration('2s') - duration('500ms')", timedelta(seconds=1.5)),
    ("timestamp('2026-11-22T10:00:00Z') - timestamp('2026-11-22T09:00:00+00:00') == duration('1h')", True),
    ("timestamp('2026-11-22T23:30:00Z').getDayOfWeek('Asia/Tokyo')", 1), ("int('42') + int(2.9) + int(3u)", 47),
    ("string(1) + string(true) + string(1.5)", "1true1.5"), ("double('1.5')", 1.5),
    ("size('äö') + size([1]) + size({'a': 1})", 4),
    ("'a,b,c'.split(',', 2)", ["a", "b,c"]), ("['a', 'b'].join('-')", "a-b"), ("'abcd'.substring(1, 3)", "bc"),
    ("'%s has %d of %.1f'.format([self.words, 3, 2.5])", "[a, b] has 3 of 2.5"),
    ("'Ab'.lowerAscii() + 'Ab'.upperAscii()", "abAB"),
    ("'abcabc'.find('b.') + string('abcabc'.findAll('b').size())", "bc2"), ("' x '.trim().charAt(0)", "x"),
    ("[1, 3, 2].max() + [1, 3, 2].min() + [1, 3, 2].sum()", 10), ("[2, 1].isSorted()", False), ("[1, 2, 1].indexOf(1)", 0),
    ("[1, 2, 1].lastIndexOf(1)", 2), ("sets.contains([1, 2], [2])", True), ("math.greatest(1, 3, 2)", 3),
    ("lists.range(3)", [0, 1, 2]),
    ("url('https://a.b:80/c?d=e').getHostname()", "a.b"), ("isURL('::')", False), ("ip('10.0.0.1').family()", 4),
    ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", True), ("isIP('10.0.0')", False),
    ("format.dns1123Label().validate('Not').hasValue()", True), ("jsonpatch.escapeKey('a/b~c')", "a~1b~0c"),
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
    ("1 % 0", "zero"), ("int('x')", "cannot convert"), ("duration('1x')", "cannot convert"),
    ("timestamp('now')", "cannot convert"),
    ("'a'.matches('(')", "no regular expression"), ("optional.none().value()", "dereference"),
    ("'a'.size(1)", "no such overload"),
    ("quantity('x')", ""), ("self.name.sign()", "no such overload"), ("self.allowed()", "no such overload"),
    ("'abc'.substring(2, 1)", "out of range"), ("self.size.all(x, true)", "no such overload"), ("[].max()", "empty"),
])  # fmt: skip
def test_what_means_nothing_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(CelError) as problem:
        value(text)
    assert said in str(problem.value)


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


def test_words_in_any_order_are_an_expression_or_refused() -> None:
    words = [*WORDS.split(), ", ", " in "]
    seed = Random().randrange(10**9)
    dice, read = Random(seed), 0
    for _ in range(4000):
        text = "".join(dice.choices(words, k=dice.randrange(1, 9)))
        for closed in (text, text + ")" * text.count("("), f"({text}"):
            try:
                value(closed, Budget(10_000))
                read += 1
            except CelError:
                pass
            except Exception as problem:
                raise AssertionError(f"seed {seed}: {closed!r} ended by {problem!r}") from problem
    assert read > 100
