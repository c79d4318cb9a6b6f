"""The controller's page has every series of upstream's (Volcano pkg/scheduler/metrics)."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pumice_jobs.metrics.controller import controller_page, pod_creation_latency

TABLE = [
    *((f"volcano_queue_pod_group_{phase}_count", "gauge", {"queue_name"})
      for phase in ("inqueue", "pending", "running", "unknown", "completed")),
    ("volcano_job_completed_phase_count", "counter", {"job_name", "queue_name"}),
    ("volcano_job_failed_phase_count", "counter", {"job_name", "queue_name"}),
    ("volcano_controller_job_to_pod_creation_latency_milliseconds", "histogram", set[str]()),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kind", "labels"), TABLE, ids=[row[0] for row in TABLE])
def test_each_series_has_its_type_and_labels(name: str, kind: str, labels: set[str]) -> None:
    latency = pod_creation_latency()
    latency.observe(70.0)
    page = controller_page(["q"], [("q", "Running")], {("default/j", "q"): 1}, {("default/j", "q"): 2}, latency)
    assert f"# TYPE {name} {kind}\n" in page
    samples = [sample for found in text_string_to_metric_families(page) for sample in found.samples
               if sample.name in (name, f"{name}_total", f"{name}_bucket")]  # fmt: skip
    assert samples
    assert {frozenset(sample.labels.keys() - {"le"}) for sample in samples} == {frozenset(labels)}
    if kind == "histogram":
        edges = [float(sample.labels["le"]) for sample in samples]
        assert (edges[0], edges[-2], len(edges) - 1) == (pytest.approx(50), pytest.approx(60000), 30)
