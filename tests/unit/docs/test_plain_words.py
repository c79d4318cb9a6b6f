"""The documents for users keep to plain words, and the linter finds what it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import pictures, plain_words


def test_every_page_is_plain() -> None:
    """``python -m kit.plain_words``; docs/develop/style.md tells the rules."""
    assert list(plain_words.check()) == []


def test_no_page_in_english_is_left_out_but_decisions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pages that programs make are read by users, too; in those for developers words of our own may stand."""
    home = plain_words.ROOT / "docs"
    every = {path.relative_to(home.parent).as_posix() for path in home.rglob("*.md")}
    every |= {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
    assert {name for name in every - set(plain_words.pages()) if not name.startswith(("docs/adr/", "docs/zh/"))} == set()
    (tmp_path / "page.md").write_text(f"The ledger.\n\n{'word ' * 26}end.\n", "utf-8")
    for_users, for_developers = "docs/reference/page.md", "docs/develop/page.md"
    monkeypatch.setattr(plain_words, "pages", lambda: dict.fromkeys((for_users, for_developers), tmp_path / "page.md"))
    found = [line.partition(": ")[0] for line in plain_words.check()]
    assert found == [f"{for_users}:1", f"{for_users}:3", f"{for_developers}:3"]


def test_a_long_sentence_and_a_word_of_our_own_are_found_with_their_lines() -> None:
    text = "# A page\n\nShort. " + "word " * 24 + "\nends [here](a-long-target.md) `with code`.\n\n- The ledger says so.\n"
    assert [(line, what.partition(":")[0]) for line, what in plain_words.faults(text)] == [
        (3, "27 words in one sentence, 25 are the most"),
        (6, "'ledger'"),
    ]


def test_a_page_of_many_middling_sentences_is_too_long_on_average() -> None:
    sixteen = "Word " + "word " * 14 + "end."
    assert list(plain_words.faults(f"{sixteen}\n" * 19)) == []
    assert [what for _, what in plain_words.faults(f"{sixteen}\n" * 20)] == [
        "its 20 sentences have 16.0 words on average, 15 are the most",
    ]
    assert list(plain_words.faults(f"{sixteen} Three more words.\n" * 20)) == []


def test_code_is_no_prose_and_each_cell_of_a_table_is_read_by_itself() -> None:
    cell = "word " * 20
    text = f"```sh\n{'word ' * 40}\n```\n\n    {'word ' * 40}\n\n| a | b |\n|---|---|\n| {cell} | {cell} |\n"
    assert list(plain_words.faults(text)) == []


def test_the_pictures_are_what_the_script_draws() -> None:
    """``python -m kit.pictures``"""
    made = pictures.every()
    assert {path.name: path.read_text("utf-8") for path in pictures.HOME.glob("*.svg") if path.name in made} == made
