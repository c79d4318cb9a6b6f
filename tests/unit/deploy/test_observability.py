"""Dashboards and rules ask for what stands on our pages, and the daemons are found by the labels that they have."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.dashboards import DASHBOARDS, FOLDER, render
from kit.manifests import manifest
from kit.metric_pages import SCRAPED, asked_for, grouped, series

from pumice.web.views import Views
from pumice.wire.programs import programs

OBSERVABILITY = FOLDER.parent
ROOT = Path(__file__).parents[3]


@cache
def rules() -> list[dict[str, Any]]:
    return [rule for part in yaml.safe_load((OBSERVABILITY / "rules.yml").read_text("utf-8"))["groups"] for rule in part["rules"]]


ALERTS = [rule["alert"] for rule in rules() if "alert" in rule]
QUERIES = {f"{name}: {panel.title}: {legend}": query for name, board in DASHBOARDS.items() for panel in board.panels
           for legend, query in panel.queries.items()}  # fmt: skip
QUERIES |= {f"{name}: ${variable}": query for name, board in DASHBOARDS.items() for variable, query in board.variables.items()}
QUERIES |= {rule.get("alert") or rule["record"]: rule["expr"] for rule in rules()}


def known() -> dict[str, frozenset[str]]:
    recorded = {rule["record"]: frozenset(grouped(rule["expr"])) for rule in rules() if "record" in rule}
    return {**series(), **recorded, "up": frozenset()}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_what_its_table_says(name):
    """``python -m kit.dashboards``"""
    assert (FOLDER / f"{name}.json").read_text("utf-8") == render(name)
    board = json.loads(render(name))
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places)
    assert all(panel["description"] and panel["targets"] for panel in board["panels"])
    (link,) = board["links"]
    assert link["url"].removeprefix("${page}/") in Views(None, None).views, "a page of `pumice web`"
    assert "page" in [variable["name"] for variable in board["templating"]["list"]]


@pytest.mark.parametrize("which", QUERIES)
def test_every_metric_and_label_of_a_query_stands_on_a_page(which):
    query, there = QUERIES[which], known()
    requested = [(name, labels) for name, labels in asked_for(query) if name not in LABELS_OF_VALUES.get(which, ())]
    assert requested, query
    for name, labels in requested:
        assert name in there, f"{name}: nobody tells it"
        assert labels <= there[name] | SCRAPED, f"{name} has the labels {sorted(there[name])}"
    made = set(re.findall(r'label_replace\(.*?, "(\w+)"', query))
    assert grouped(query) <= set().union(*(there[name] for name, _ in requested)) | SCRAPED | made


LABELS_OF_VALUES = {f"{name}: ${variable}": (query.rstrip(")").rpartition(", ")[2],) for name, board in DASHBOARDS.items()
                    for variable, query in board.variables.items()}  # fmt: skip
"""Names in Grafana's label_values() that are no metrics."""


def test_a_metric_that_nobody_tells_is_seen():
    assert list(asked_for('sum by (a, b) (rate(x_total{c="d e", f=~"$g"}[5m])) / on (h) y offset 5m')) == [
        ("x_total", {"c", "f"}), ("y", set())]  # fmt: skip
    assert grouped("sum by (a, b) (x) / on (h) y") == {"a", "b", "h"}


def test_every_alert_says_how_bad_it_is_and_what_it_means():
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"].keys() == {"summary", "description"}
    page = (ROOT / "docs" / "how-to" / "watch.md").read_text("utf-8")
    assert [alert for alert in ALERTS if f"`{alert}`" not in page] == []


def test_each_daemon_of_the_manifests_is_found_by_its_labels_and_the_port_of_its_pages():
    (job,) = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    found = set()
    for name in sorted(path.name for path in (ROOT / "src/pumice/manifests").glob("*.yml")):
        for obj in manifest(name):
            template = (obj.get("spec") or {}).get("template") or {}
            for program, _ in programs(template.get("spec") or {}):
                kept = [target for port in template["spec"]["containers"][0]["ports"]
                        if (target := scraped(job, template["metadata"]["labels"], port["name"])) is not None]  # fmt: skip
                assert len(kept) == 1, (name, kept)
                found.add((str(program.role), kept[0]))
    assert {("scheduler", "volcano-scheduler"), ("monitor", "volcano-vgpu-monitor"), ("device plugin", "volcano-device-plugin"),
            ("device plugin", "hami-ascend-device-plugin")} <= found  # fmt: skip
    assert all("plugin" in job for role, job in found if role == "device plugin")


def scraped(job: dict[str, Any], labels: dict[str, str], port: str) -> str | None:
    """Return the scrape target of a container's port, as Prometheus' relabelling does it; None where it is left out."""
    meta = {f"__meta_kubernetes_pod_label_{re.sub('[^a-zA-Z0-9_]', '_', key)}": value for key, value in labels.items()}
    meta["__meta_kubernetes_pod_container_port_name"] = port
    for step in job["relabel_configs"]:
        value = ";".join(meta.get(source, "") for source in step["source_labels"])
        match = re.fullmatch(step.get("regex", "(.*)"), value)
        if step.get("action") == "keep" and match is None:
            return None
        if match is not None and "target_label" in step:
            meta[step["target_label"]] = match[1]
    return meta["job"]
