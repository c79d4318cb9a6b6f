"""Helm as `make kube` builds it, or the PATH's; and the chart, rendered."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from pumice.ports.cluster import Json

CHART = Path(__file__).resolve().parents[1] / "deploy" / "chart"


def program(name: str) -> str:
    """Helm, or what `make kube` builds beside it. Skips the test where there is none."""
    built = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere")) / name
    found = str(built) if built.exists() else shutil.which(name)
    if not found:
        pytest.skip(f"{name} is neither in KUBEBUILDER_ASSETS nor on the PATH (make kube)")
    return found


def helm(*words: str, values: Json | None = None, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """With these values besides the chart's; nothing of the user's own settings is read."""
    with tempfile.TemporaryDirectory() as home:
        given = Path(home) / "given.yaml"
        given.write_text(yaml.safe_dump(values))
        more = [f"--values={given}"] if values is not None else []
        environ = {"PATH": os.environ["PATH"], "HOME": home} | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
        command = [program("helm"), *words, *more]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)


def rendered(values: Json) -> list[Json]:
    done = helm("template", "pumice", str(CHART), "--namespace", "default", values=values)
    assert done.returncode == 0, done.stderr
    return [obj for obj in yaml.load_all(done.stdout, yaml.CSafeLoader) if obj]


def refusal(values: Json, *words: str) -> str:
    done = helm("template", "pumice", str(CHART), *words, values=values)
    assert done.returncode != 0, "nothing was refused"
    return done.stderr


def key(obj: Json) -> tuple[Any, ...]:
    return obj["apiVersion"], obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]
