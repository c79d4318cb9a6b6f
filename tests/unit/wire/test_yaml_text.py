"""YAML is read quickly, and is what PyYAML's own loader says: values, and the words of what is refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pumice.wire.document import safe_load, safe_load_all

DOCUMENTS = (
    "", "a: b", "a: [1, 0x1f, 1_000, 0o7, 1e3, .inf, ~, yes, 2001-01-02]", "a: &x {b: 1}\nc: {<<: *x, d: 2}", "a: |\n  b\n  c\n",
    "a: >-\n  b\n  c", "'a b': \"c\\n\"", "\ufeffa: b", "- 1\n- - 2\n  - {3: 4}", "a: \U0001f600", "? a\n: b", "&a [*a]",
)  # fmt: skip
REFUSED = (
    "a:\n\t- b", "a: b: c", "a:\n  - b\n c: d", "a: *b", "a: 'x\nb: c", "a: [1,2", "[", "{a: }}", "a: \x00", "a: 1\na",
    "- a\nb: c", "%YAML 3.0\n---\na", "a: !!python/object:x {}", "<<: 3", "\ud800", "? [a]\n: b", "--- a\n--- b", "a: 2001-99-99",
)  # fmt: skip


def outcome(load, text):
    try:
        return repr(load(text))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("text", DOCUMENTS + REFUSED)
def test_a_document_is_what_pyyaml_says(text):
    assert outcome(safe_load, text) == outcome(yaml.safe_load, text)


@given(st.text("ab:-?[]{},&*|>'\"%#~ \t\n01", max_size=24))
def test_whatever_pyyaml_reads_is_read_alike(text):
    """libyaml reads some texts beyond, as a tab before the end of a line; and a tag of no letters is that of text to it alone."""
    try:
        expected = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return
    assert repr(safe_load(text)) == repr(expected)


def test_so_are_several_documents():
    text = "a: 1\n---\n- b\n--- c\n...\n---\n"
    assert safe_load_all(text) == list(yaml.safe_load_all(text))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_what_nests_without_end_is_refused_before_it_is_read_to_the_end(opening):
    """A million levels: read to the end, it would take hours."""
    with pytest.raises(RecursionError):
        safe_load(opening * 1_000_000)
