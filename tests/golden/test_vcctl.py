"""The output of vcctl, letter for letter: columns, widths and words (Volcano pkg/cli; upstream's pkg/cli).

`python -m tests.golden.test_vcctl` writes the files anew; read their diff before you keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from pumice_jobs.cli import volcano_tables as tables

HERE = Path(__file__).parent / "vcctl"
NOW = datetime.fromisoformat("2026-11-22T12:00:00Z").timestamp()
Objects = dict[str, Any]
SHOWN: dict[str, Callable[[Objects], str]] = {
    "job_list": lambda given: tables.jobs(given["jobs"][:1], namespaces=False),
    "job_list_all_namespaces": lambda given: tables.jobs(given["jobs"], namespaces=True),
    "job_list_none": lambda given: tables.jobs([], namespaces=False),
    "job_view": lambda given: tables.description(given["jobs"][0], given["events"], NOW),
    "queue_list": lambda given: tables.queues(given["queues"], given["groups"]),
    "pod_list": lambda given: tables.pods(given["pods"], namespaces=False, now=NOW),
    "pod_list_all_namespaces": lambda given: tables.pods(given["pods"], namespaces=True, now=NOW),
    "jobflow_list": lambda given: tables.flows(given["flows"], NOW, phased=True),
    "jobtemplate_list": lambda given: tables.flows(given["templates"], NOW, phased=False),
}


def _objects() -> Objects:
    found: Objects = yaml.safe_load((HERE / "objects.yaml").read_text())
    return found


@pytest.mark.parametrize("name", SHOWN)
def test_a_table_is_what_it_was(name: str) -> None:
    assert SHOWN[name](_objects()) + "\n" == (HERE / f"{name}.txt").read_text()


if __name__ == "__main__":
    for name, show in SHOWN.items():
        (HERE / f"{name}.txt").write_text(show(_objects()) + "\n")
