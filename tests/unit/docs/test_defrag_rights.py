"""The rights that the how-to names for who gives ``pumice defrag apply`` are those that it uses, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from pumice.cli.cluster_snapshot import KINDS_KEPT

DOCS = Path(__file__).parents[3] / "docs"
WRITES = {("", "pods/eviction", "create"), ("", "nodes", "get"), ("", "nodes", "patch"), ("", "configmaps", "get")}
"""Beside what a snapshot of the cluster is made of; ``tests/scenarios/test_moving_pods.py`` sees the calls."""


@pytest.mark.parametrize("page", ["how-to/defragment.md", "zh/how-to/defragment.md"])
def test_the_role_of_who_moves_pods_has_the_rights_that_the_command_uses(page: str) -> None:
    text = (DOCS / page).read_text("utf-8").split("```yaml\napiVersion: rbac")[1].split("```")[0]
    rules = yaml.safe_load(f"apiVersion: rbac{text}")["rules"]
    named = {(group, resource, verb) for rule in rules for group in rule["apiGroups"] for resource in rule["resources"]
             for verb in rule["verbs"]}  # fmt: skip
    assert named == WRITES | {(resource.group, resource.plural, "list") for resource, _ in KINDS_KEPT.values()}
