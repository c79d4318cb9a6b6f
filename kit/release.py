"""The version, from one place: `python -m kit.release` writes what `src/pumice/__init__.py` says into plain files.

Wheels read it when they are built, and the image when it is made. The laboratory's package, the manifests, the chart, the
Dockerfile and the pages that name the image are files that somebody applies or reads as they are.
`tests/unit/deploy/test_release.py` compares.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SOURCE = "src/pumice/__init__.py"


class Release(NamedTuple):
    version: str
    commit: str
    date: str


LAST = Release("0.1.0", "128d06fba70450eda2f3c6c206b3d2d1442bf94d", "2026-11-24")
"""The release before this one: `tests/golden/last_release` has its files, and upgrades are tried from it. It was never
tagged; the commit is the one that wrote those files."""
NEWEST = Release("0.2.0", "ea0b928d784cb5160cd93789578f24ea68753415", "2026-11-28")
"""The release from which today's tree goes on: the random plane plays its daemons beside today's. It becomes `LAST` when the
version is raised, and the new one takes its place when that is released."""

NUMBER = r"\d+\.\d+\.\d+"
PLACES = (
    ("lab/src/pumice_lab/__init__.py", rf'(?m)^(__version__ = "){NUMBER}'),
    ("deploy/chart/Chart.yaml", rf"(?m)^(version: |appVersion: ){NUMBER}"),
    ("deploy/image/Dockerfile", rf"(pumice/pumice:|pumice-){NUMBER}"),
    ("src/pumice/manifests/*.yml", rf"(pumice/pumice:){NUMBER}"),
    ("docs/**/*.md", rf"(pumice/pumice:|dist/pumice-){NUMBER}"),
)
"""Files, and what stands before the version in them."""


def version(root: Path = ROOT) -> str:
    (found,) = re.findall(rf'(?m)^__version__ = "({NUMBER})"', (root / SOURCE).read_text("utf-8"))
    return str(found)


def written(root: Path = ROOT) -> dict[Path, str]:
    """Each file that says the version, as it must be."""
    number, found = version(root), {}
    for pattern, before in PLACES:
        for path in sorted(root.glob(pattern)):
            text = path.read_text("utf-8")
            if re.search(before, text):
                found[path] = re.sub(before, rf"\g<1>{number}", text)
    return found


def main() -> int:
    for path, text in written().items():
        if path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())
