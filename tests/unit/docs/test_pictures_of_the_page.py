"""The pictures of `pumice web` in the documents are there, and small."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"


def test_each_picture_of_the_page_is_there_is_a_picture_and_is_small() -> None:
    for page in ("how-to/web.md", "zh/how-to/web.md"):
        named = re.findall(r"!\[[^\]]+\]\(([^)]+\.png)\)", (DOCS / page).read_text("utf-8"))
        assert len(named) == 3, page
        for name in named:
            picture = (DOCS / page).parent.joinpath(name).read_bytes()
            assert picture.startswith(b"\x89PNG"), name
            assert len(picture) <= 150_000, name
