"""A mistake in a file of configuration is named where it stands: file, line, key, nearest right word."""

from __future__ import annotations

import pytest

from pumice.model.errors import BadInput
from pumice.wire.document import Field, read_document, read_documents

TEXT = "cards:\n- memroy: 3\n  mig: maybe\nname: [1]\n"


def refused(field: Field, how: str, *given: object) -> str:
    with pytest.raises(BadInput) as raised:
        getattr(field, how)(*given)
    return str(raised.value)


def test_a_value_knows_its_file_its_line_and_its_path() -> None:
    (card,) = read_document(TEXT, file="m.yaml").root["cards"].items()
    assert refused(card, "mapping", ("memory", "mig")) == "m.yaml:2: cards[0].memroy: unknown key; did you mean 'memory'?"
    assert refused(card["mig"], "flag") == "m.yaml:3: cards[0].mig: expected true or false, not 'maybe'"
    assert refused(card["mig"], "items") == "m.yaml:3: cards[0].mig: expected a list, not 'maybe'"
    assert str(card["gone"]) == "m.yaml:2: cards[0].gone", "what is missing stands where its mapping does"


def test_a_text_inside_of_a_file_names_the_files_lines() -> None:
    root = read_document(TEXT, first_line=10).root
    assert str(root["cards"].items()[0]["mig"]) == "line 12: cards.0.mig"
    assert refused(root["name"], "mapping") == "line 13: name: expected a mapping, not [1]"


@pytest.mark.parametrize(("text", "words"), [
    ("a: [", "x:1: not YAML"), ("a: b: c", "x:1: a second colon"), ("a: &a [*a]", "x:1: a[0]: holds itself"),
    ("a: 2001-99-99", "x:1: not YAML: month must be in"),
])  # fmt: skip
def test_what_is_no_document_is_one_line(text: str, words: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_document(text, file="x")
    assert str(raised.value).startswith(words)
    assert "\n" not in str(raised.value)


def test_every_document_of_a_stream_has_the_lines_of_its_file() -> None:
    first, second = read_documents("a: 1\n---\n\nb: 2\nb: 3\n", file="x")
    assert (first.value, second.value) == ({"a": 1}, {"b": 3})
    assert str(second.root["b"]) == "x:5: b"
    assert second.duplicates == [(("b",), 5)]
