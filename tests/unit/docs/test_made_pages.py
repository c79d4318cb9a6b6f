"""Pages of the reference that programs make, or whose rows a program can count."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from kit import made_pages
from kit.manifests import manifest

KINDS = (made_pages.FOLDER / "kinds.md").read_text("utf-8")


def test_the_pages_of_metrics_and_rights_are_what_the_daemons_and_manifests_say() -> None:
    """``python -m kit.made_pages``"""
    assert (made_pages.FOLDER / "metrics.md").read_text("utf-8").splitlines() == made_pages.metrics().splitlines()
    assert (made_pages.FOLDER / "rights.md").read_text("utf-8") == made_pages.rights()


def test_a_sample_is_of_the_same_job_whichever_jobs_are_tried_again() -> None:
    jobs = ['retries{job_id="bad"} 1', 'retries{job_id="g"} 2']
    assert {made_pages.sample_of("\n".join(lines), "retries") for lines in (jobs, jobs[::-1])} == {jobs[0]}
    assert made_pages.sample_of('share{queue="root"} 1\nshare{queue="a"} 1', "share") == 'share{queue="root"} 1'


def test_the_page_of_services_has_a_row_for_every_series_of_ours_with_its_labels_and_no_other() -> None:
    """The page of metrics has a sample of each; a row may shorten the names that follow its first, ``…_used_bytes``."""
    samples = dict(re.findall(r"^\| `(pumice_\w+)` .*\| `?(.*?)`? \|$", made_pages.metrics(), re.M))
    told: dict[str, set[str]] = {}
    for cell in re.findall(r"^\| (`pumice_.*?) \|", (made_pages.FOLDER / "service.md").read_text("utf-8"), re.M):
        labels = {word for braces in re.findall(r"{(.*?)}", cell) for word in re.split(r",\s*", braces)}
        first, *others = re.findall(r"[\w…]+", re.sub(r"{.*?}", "", cell))
        ways = [{first[:end] + other[1:] for end in range(len(first))} if other[0] == "…" else {other} for other in others]
        for names in [{first}, *ways]:
            names = {name.removesuffix("_total") for name in names}
            told |= dict.fromkeys(names & set(samples) or names, labels)
    assert sorted(set(samples) - set(told)) == []
    labelled = {name: set(re.findall(r'(\w+)="', sample)) - {"le"} for name, sample in samples.items() if "{" in sample}
    assert {name: told[name] for name, labels in labelled.items() if not labels <= told[name]} == {}
    known = (Path(__file__).parents[2] / "golden/outside/metric_names.txt").read_text("utf-8").split()
    stems = ("pumice_npu_", "pumice_vnpu_", "pumice_vgpu_device_")  # their names are put together
    assert [name for name in told if not {name, f"{name}_total"} & set(known) and not name.startswith(stems)] == []


def test_every_kind_that_the_manifests_define_has_its_row() -> None:
    shipped = [obj["spec"] for path in (files("pumice") / "manifests/crds").iterdir() for obj in manifest(f"crds/{path.name}")]
    assert len(shipped) >= 11
    for spec in shipped:
        (version,) = (version["name"] for version in spec["versions"])
        short = ", ".join(f"`{name}`" for name in spec["names"].get("shortNames", ()) if not name.endswith("v1beta1"))
        scope = "cluster" if spec["scope"] == "Cluster" else "namespace"
        row = f"| {spec['names']['kind']} | `{spec['group']}/{version}` | {scope} | {short} |".replace("|  |", "| |")
        assert row in KINDS
