"""Translations: the same structure and commands as their originals, and each says by hashes how old it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit import translations

PAGES = translations.pages()
each = pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(translations.CHINESE).as_posix() for page in PAGES])
BLOCK = re.compile(r"^```.*?^```", re.M | re.S)


@each
def test_a_translation_has_its_originals_sections_and_its_commands_as_they_are(page: Path) -> None:
    """Where the original has changed since, ``python -m kit.translations`` says so, and a release waits for it."""
    stale = list(translations.older(page))
    assert "nobody has said which original it translates" not in stale
    if stale:
        pytest.skip(f"is older than its original: {stale[0]}")
    text, original = page.read_text("utf-8"), translations.original_of(page).read_text("utf-8")
    assert len(translations.sections(text)) == len(translations.sections(original))
    assert BLOCK.findall(text) == BLOCK.findall(original)
    assert len(re.findall(r"^\|", text, re.M)) == len(re.findall(r"^\|", original, re.M)), "as many rows"
    assert re.search("[\u4e00-\u9fff]", text)


@each
def test_a_link_leads_to_the_translation_where_there_is_one(page: Path) -> None:
    docs = translations.CHINESE.parent
    targets = [(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text("utf-8"))]
    english = [there.relative_to(docs) for there in targets if there.is_relative_to(docs)]
    assert [name.as_posix() for name in english if name.parts[0] != "zh" and (translations.CHINESE / name).exists()] == []


@each
def test_a_link_to_a_part_of_a_page_names_it_as_the_original_does(page: Path) -> None:
    """Headings of translations have their originals' anchors, in the site and for who links from elsewhere."""
    translated, original = (set(re.findall(r"\]\([^)\s]*(#[^)\s]+)\)", path.read_text("utf-8")))
                            for path in (page, translations.original_of(page)))  # fmt: skip
    assert translated - original == set()


@each
def test_bold_words_end_where_every_renderer_sees_it(page: Path) -> None:
    """CommonMark, and so GitHub, leaves the asterisks standing between a full-width mark inside and a character outside."""
    prose = BLOCK.sub("", page.read_text("utf-8"))
    parts = [line.split("**") for line in prose.splitlines()]
    ends = [(line[i], line[i + 1]) for line in parts for i in range(1, len(line) - 1, 2)]
    assert [bold for bold, after in ends if re.search(r"[^\w`]$", bold) and re.match(r"\w", after)] == []


def test_a_changed_section_a_new_one_and_one_that_went_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, page = tmp_path / "docs" / "a.md", tmp_path / "docs" / "zh" / "a.md"
    page.parent.mkdir(parents=True)
    monkeypatch.setattr(translations, "ROOT", tmp_path)
    monkeypatch.setattr(translations, "CHINESE", page.parent)
    original.write_text("# A\n\none\n\n## B\n\n```sh\n# no heading\n```\n")
    page.write_text("# 甲\n\n一\n\n## 乙\n")
    assert list(translations.older(page)) == ["nobody has said which original it translates"]
    translations.main(["--mark", str(page)])
    assert list(translations.older(page)) == []
    assert translations.main(["--release"]) == 0
    original.write_text("# A\n\none\n\n## B\n\nother\n\n## C\n")
    assert list(translations.older(page)) == ["section 'B' has changed", "section 'C' has changed"]
    assert (translations.main([]), translations.main(["--release"])) == (0, 1)
    original.write_text("# A\n\n1. ```sh\n   # no heading\n   ```\n\n## B\n")
    assert [title for title, _ in translations.sections(original.read_text())] == ["A", "B"], "code in an item of a list"
    original.write_text("# A\n\none\n")
    assert list(translations.older(page)) == ["a section has gone"]
