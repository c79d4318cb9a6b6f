"""The functions of expressions: the language's, those of its extensions, and Kubernetes'."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from kit.expressions import value

from pumice.cel.values import CelError


@pytest.mark.parametrize(("text", "expected"), [
    ("quantity('1500m').add(quantity('500m')).asInteger()", 2), ("quantity('1Ki').compareTo(quantity('1k'))", 1),
    ("semver('1.2.3').isLessThan(semver('1.10.0'))", True), ("semver('1.0.0-rc.2').compareTo(semver('1.0.0-rc.10'))", -1),
    ("semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", True), ("semver('1.2.3') == semver('1.2.3+build')", True),
    ("isSemver('1.2')", False), ("isSemver('01.2.3')", False), ("semver('v01.2', true).minor()", 2),
    ("semver('12.8.1').major() + semver('12.8.1').patch()", 13), ("isSemver('1.0.0-01')", False),
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
])  # fmt: skip
def test_a_function_comes_to(text: str, expected: Any) -> None:
    assert value(text) == expected
    assert type(value(text)) is type(expected)


@pytest.mark.parametrize(("text", "said"), [
    ("int('x')", "cannot convert"), ("duration('1x')", "cannot convert"), ("timestamp('now')", "cannot convert"),
    ("'a'.matches('(')", "no regular expression"), ("'abc'.substring(2, 1)", "out of range"), ("[].max()", "empty"),
    ("quantity('x')", ""), ("self.name.sign()", "no such overload"),
])  # fmt: skip
def test_what_a_function_cannot_take_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(CelError) as problem:
        value(text)
    assert said in str(problem.value)
