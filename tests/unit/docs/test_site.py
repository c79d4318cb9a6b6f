"""The site of the documents builds without a warning, and what is wrong with a built one is found."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from kit import site


def test_the_site_builds_in_both_languages_and_every_link_leads_on(tmp_path: Path) -> None:
    """CI has run `make docs` before, so there it is never skipped."""
    if not importlib.util.find_spec("zensical") and "PUMICE_CI" not in os.environ:
        pytest.skip("the extra `docs` is not installed: make docs")
    assert site.build(tmp_path / "site", tmp_path / "scratch") == []
    for page in ("index.html", "zh/index.html", "reference/commands.html", "contributing.html"):
        assert "<h1" in (tmp_path / "site" / page).read_text("utf-8")
    assert "zh/how-to/mig.html" in (tmp_path / "site/how-to/mig.html").read_text("utf-8"), "the same page in the other language"


def test_every_page_has_its_place_in_the_navigation() -> None:
    listed = [name for section in site.navigation() for name in section.pages]
    decisions = {name for name in site.originals() if name.startswith("adr/") and name != "adr/README.md"}
    assert sorted(listed) == sorted(set(site.originals()) - decisions)


def test_what_a_reader_would_stumble_over_is_told(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<p id=here>')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#here"><a href="b.html#there"><a href="c.html"><a href="https://example.com/">'
        '<script src="https://example.com/x.js"></script><img src=//example.com/y.png>'
    )
    assert sorted(site.faults(tmp_path)) == [
        "a.html: asks another host: <img src=//example.com/y.png",
        'a.html: asks another host: <script src="https://example.com/x.js',
        "a.html: leads nowhere: //example.com/y.png",
        "a.html: leads nowhere: c.html",
        "a.html: no such place: b.html#there",
    ]
    (tmp_path / "a.html").write_text("x" * (site.HEAVIEST + 1))
    assert list(site.faults(tmp_path)) == [f"a.html: {site.HEAVIEST + 1} bytes"]


def test_links_out_of_the_site_lose_their_target_and_those_of_a_translation_stay_in_its_language() -> None:
    text = "[it](../CONTRIBUTING.md) [queues](reference/queues.md#x) [all](adr) [an example](../examples/ascend.yaml) [far](https://a.b/)"
    assert site.lead_on(text, "architecture.md", site.DOCS / "architecture.md") == (
        "[it](contributing.md) [queues](reference/queues.md#x) [all](adr/README.md) an example [far](https://a.b/)"
    )
    said = site.lead_on("[队列](../../reference/queues.md)", "how-to/mig.md", site.DOCS / "zh" / "how-to" / "mig.md")
    assert said == "[队列](../reference/queues.md)"


def test_a_heading_of_a_translation_has_the_name_of_its_original_that_links_lead_to() -> None:
    original = "# By `hand`\n\n```sh\n# no heading\n```\n\n## Who's moved, and who is not\n"
    assert site.same_places("# 手工\n\n```sh\n# no heading\n```\n\n## 谁被移动，谁不动\n", original) == (
        "# 手工 { #by-hand }\n\n```sh\n# no heading\n```\n\n## 谁被移动，谁不动 { #whos-moved-and-who-is-not }\n"
    )


def test_chinese_sentences_have_no_space_where_the_source_breaks_a_line() -> None:
    assert site.unspaced("一句。\n两句，\n`三`句\n\n- 甲，\n  乙\n- 丙\n\n1. 丁\n2. 戊\n\nof two\nwords\n") == (
        "一句。两句，`三`句\n\n- 甲，乙\n- 丙\n\n1. 丁\n2. 戊\n\nof two\nwords\n"
    )
    as_it_is = "# 题\n| 甲 |\n| 乙 |\n```sh\n命令\n命令\n```\n\n说明：\n```sh\nx\n```\n\n    缩进，\n    照旧\n"
    assert site.unspaced(as_it_is) == as_it_is


def test_a_page_that_stays_english_says_why_in_chinese_and_another_that_nobody_has_translated_it() -> None:
    assert "--help" in site.why_english("reference/commands.md")
    assert "ADR" in site.why_english("adr/0010-mig-models.md")
    assert site.why_english("how-to/new.md") == site.NOT_TRANSLATED
    for start in site.STAYS_ENGLISH:
        assert any(name.startswith(start) for name in site.originals())
        assert not list(site.DOCS.glob(f"zh/{start}*")), "there is a translation after all"
