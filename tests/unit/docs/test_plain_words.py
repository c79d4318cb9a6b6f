"""The documents for users keep to plain words, and the linter finds what it is for."""

from __future__ import annotations

from kit import pictures, plain_words


def test_pages_that_were_rewritten_are_plain_and_stay_so() -> None:
    """``python -m kit.plain_words``; docs/develop/style.md tells the rules."""
    assert list(plain_words.check()) == []


def test_a_long_sentence_and_a_word_of_our_own_are_found_with_their_lines() -> None:
    text = "# A page\n\nShort. " + "word " * 24 + "\nends [here](a-long-target.md) `with code`.\n\n- The ledger says so.\n"
    assert [(line, what.partition(":")[0]) for line, what in plain_words.faults(text)] == [
        (3, "27 words in one sentence, 25 are the most"),
        (6, "'ledger'"),
    ]


def test_code_is_no_prose_and_each_cell_of_a_table_is_read_by_itself() -> None:
    cell = "word " * 20
    text = f"```sh\n{'word ' * 40}\n```\n\n    {'word ' * 40}\n\n| a | b |\n|---|---|\n| {cell} | {cell} |\n"
    assert list(plain_words.faults(text)) == []


def test_a_page_that_became_plain_has_to_leave_the_list(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setitem(plain_words.RULES, "not_yet", [*plain_words.RULES["not_yet"], "docs/index.md", "docs/gone.md"])
    assert list(plain_words.check()) == [
        "docs/index.md: is plain now: take it out of not_yet in kit/plain_words.toml",
        "docs/gone.md: is listed in kit/plain_words.toml, and no page for users",
    ]


def test_the_pictures_are_what_the_script_draws() -> None:
    """``python -m kit.pictures``"""
    made = pictures.every()
    assert {path.name: path.read_text("utf-8") for path in pictures.HOME.glob("*.svg") if path.name in made} == made
