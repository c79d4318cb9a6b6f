"""Pages of the reference that programs make, or whose rows a program can count."""

from __future__ import annotations

from importlib.resources import files

from kit import made_pages
from kit.manifests import manifest

KINDS = (made_pages.FOLDER / "kinds.md").read_text("utf-8")


def test_the_pages_of_metrics_and_rights_are_what_the_daemons_and_manifests_say() -> None:
    """``python -m kit.made_pages``"""
    assert (made_pages.FOLDER / "metrics.md").read_text("utf-8") == made_pages.metrics()
    assert (made_pages.FOLDER / "rights.md").read_text("utf-8") == made_pages.rights()


def test_every_kind_that_the_manifests_define_has_its_row() -> None:
    shipped = [obj["spec"] for path in (files("pumice") / "manifests/crds").iterdir() for obj in manifest(f"crds/{path.name}")]
    assert len(shipped) >= 11
    for spec in shipped:
        (version,) = (version["name"] for version in spec["versions"])
        short = ", ".join(f"`{name}`" for name in spec["names"].get("shortNames", ()) if not name.endswith("v1beta1"))
        scope = "cluster" if spec["scope"] == "Cluster" else "namespace"
        row = f"| {spec['names']['kind']} | `{spec['group']}/{version}` | {scope} | {short} |".replace("|  |", "| |")
        assert row in KINDS
