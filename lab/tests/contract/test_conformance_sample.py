"""A sample of Kubernetes' own e2e suite where that is built; ``make conformance`` counts all of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kit.conformance import run_specs, specs
from kit.control_plane import control_plane, write_kubeconfig

SAMPLE = (
    "ServerSideApply should work for CRDs", "LimitRange should create a LimitRange with defaults", "reflector doesn't support",
    "ConfigMap lifecycle", "health handlers", "should detect unknown and duplicate fields", "custom resource defaulting",
)  # fmt: skip


def test_what_passes_on_kubernetes_passes_here(tmp_path: Path) -> None:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"))
    if not (assets / "e2e.test").is_file():
        pytest.skip("Kubernetes' own suite is not built here: make conformance builds it")
    chosen = [spec for spec in specs() if any(words in spec for words in SAMPLE)]
    assert len(chosen) == len(SAMPLE)
    with control_plane("embedded", tmp_path / "cluster") as api:
        config = write_kubeconfig(tmp_path / "kubeconfig", api)
        outcomes = run_specs(assets, config, chosen, tmp_path / "specs", at_once=1, seconds=100)
    assert [(outcome.spec, outcome.why) for outcome in outcomes if outcome.why] == []
