"""Words in any order are an expression or refused."""

from __future__ import annotations

from random import Random

from kit.expressions import value

from pumice.cel.running import Budget
from pumice.cel.values import CelError

WORDS = """
self . size ? : ( ) [ ] { } , 1 2u 1.5 'a' b'a' && || ! - + * / % == < has( .all( x .map( .? [? null true
size( optional.of( .orValue( type( duration('1s') timestamp('2026-01-01T00:00:00Z') quantity('1') .add(
string( int( .split( .join( .matches( .format( cel.bind(x, math.greatest( .sum() .max() ip('::1') .family()
Object{ a: self.words self.labels self.parts self.name self.none .getHours() .charAt(
"""


def test_words_in_any_order_are_an_expression_or_refused() -> None:
    words = [*WORDS.split(), ", ", " in "]
    seed = Random().randrange(10**9)
    rng, read = Random(seed), 0
    for _ in range(4000):
        text = "".join(rng.choices(words, k=rng.randrange(1, 9)))
        for closed in (text, text + ")" * text.count("("), f"({text}"):
            try:
                value(closed, Budget(10_000))
                read += 1
            except CelError:
                pass
            except Exception as problem:
                raise AssertionError(f"seed {seed}: {closed!r} ended by {problem!r}") from problem
    assert read > 100
