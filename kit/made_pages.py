"""Pages of the reference that programs make: metrics with a sample of each, the rights of the daemons' accounts, attacks, and
what has no effect.

``python -m kit.made_pages`` writes them; ``make made`` writes all that is made, these among it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from kit import attacks
from kit.manifests import manifest
from kit.metric_pages import pages
from pumice.ports.cluster import Json
from pumice.wire import without_effect

FOLDER = Path(__file__).parents[1] / "docs/reference"
METRICS = """\
# Metrics

Each series of each daemon, with its meaning in the daemon's own words and a sample. `python -m kit.made_pages` makes this page
from the pages that the daemons serve. [The daemons as services](service.md) says where each page is, and explains them further.
"""
RIGHTS = """\
# Rights of the daemons

What the service account of each daemon may do to the cluster's objects, by manifest. `python -m kit.made_pages` makes this page
from the manifests. [Security](../how-to/security.md) says what somebody gains who has such an account.
"""


def metrics() -> str:
    lines = [METRICS]
    for name, text in pages().items():
        lines += [f"## {name}\n", "| metric | type | meaning | sample |", "|---|---|---|---|"]
        for family in sorted(text_string_to_metric_families(text), key=lambda family: family.name):
            line = sample_of(text, family.name)
            meaning = family.documentation.replace("|", r"\|").replace("<", r"\<")
            sample = f"`{_without_value(line)}`" if line else ""
            lines.append(f"| `{family.name}` | {family.type} | {meaning} | {sample} |")
        lines.append("")
    return "\n".join(lines)


def sample_of(text: str, family: str) -> str:
    """A line of the family. Of the series of several jobs the first by name: a busy machine has more jobs tried again."""
    lines = [line for line in text.splitlines() if line.startswith((f"{family}{{", f"{family} ", f"{family}_"))]
    return min((line for line in lines if "{job_id=" in line), default=lines[0] if lines else "")


def _without_value(line: str) -> str:
    """A sample without its figure, which may be of this moment."""
    return line.rpartition(" ")[0].replace("|", r"\|")


def rights() -> str:
    lines = [RIGHTS]
    for path in sorted(path.name for path in (files("pumice") / "manifests").iterdir() if path.name.endswith(".yml")):
        rows = list(_rows(manifest(path)))
        if rows:
            lines += [f"## {path}\n", "| account | where | objects | may |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _rows(objects: list[Json]) -> Iterator[str]:
    roles = {(obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace", "")): obj for obj in objects}
    for obj in objects:
        if not obj["kind"].endswith("RoleBinding"):
            continue
        namespace, to = obj["metadata"].get("namespace", ""), obj["roleRef"]
        role = roles.get((to["kind"], to["name"], namespace if to["kind"] == "Role" else ""))
        accounts = ", ".join(f"`{subject['name']}`" for subject in obj.get("subjects", ()))
        where = f"namespace `{namespace}`" if namespace else "everywhere"
        for rule in role["rules"] if role else [{"resources": [f"role {to['name']}"], "verbs": ["what it says"]}]:
            whats = ", ".join(f"`{what}`" for what in rule.get("resources", rule.get("nonResourceURLs", [])))
            only = f" named {', '.join(rule['resourceNames'])}" if rule.get("resourceNames") else ""
            yield f"| {accounts} | {where} | {whats}{only} | {', '.join(rule['verbs'])} |"


def main() -> int:
    (FOLDER / "metrics.md").write_text(metrics(), "utf-8")
    (FOLDER / "rights.md").write_text(rights(), "utf-8")
    attacks.PAGE.write_text(attacks.render(), "utf-8")
    page = FOLDER / "without-effect.md"
    made, kept = without_effect.page(), page.read_text("utf-8")
    page.write_text(kept[: kept.index("| what | name |")] + made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
