"""Every command of the documents is typed as a reader would type it, page by page, and prints what its page shows.

``python -m kit.page_commands PAGE`` does the same by hand. Translations have their originals' blocks.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from kit import page_commands
from kit.installing import program

PAGES = [page for page in page_commands.pages() if any(block.here for block in page_commands.blocks(page.read_text("utf-8")))]


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(page_commands.ROOT).as_posix() for page in PAGES])
def test_a_page_does_what_it_says(page: Path) -> None:
    """The home lies beside /tmp: an admission server's pod has a /tmp of its own."""
    for name in ("kubectl", "helm"):
        if re.search(rf"^{name} ", page.read_text("utf-8"), re.M):
            program(name)
    with tempfile.TemporaryDirectory(prefix="page-", dir="/var/tmp") as folder:
        assert page_commands.play(page, Path(folder) / "me") > 0
