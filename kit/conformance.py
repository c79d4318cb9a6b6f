"""Specs of Kubernetes' own e2e suite against a cluster, read from the reports that the suite writes.

The suite is one Go program (``tests/kube/build.sh e2e.test``). A spec's name is its containers' texts and its own, with blanks
between them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SERIAL = "[Serial]"
LOST = "it ended without a report"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``why``: the first words of what went wrong; empty where the spec passed."""

    spec: str
    seconds: float
    why: str


def specs() -> list[str]:
    """Those that a kube-apiserver passes alone."""
    lines = Path(__file__).with_name("conformance_specs.txt").read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def run_specs(assets: Path, kubeconfig: Path, specs: Sequence[str], folder: Path, *, at_once: int = 4,
              seconds: float = 400) -> list[Outcome]:  # fmt: skip
    """Each of ``at_once`` processes has its share of the specs; those that need the cluster for themselves come last. A process
    has ``seconds``; what it has not come to by then counts as failed."""
    apart = [spec for spec in specs if SERIAL not in spec]
    alone = [spec for spec in specs if SERIAL in spec]
    found: list[Outcome] = []
    for shares in ([apart[i::at_once] for i in range(at_once)], [alone]):
        processes = [_Process(assets, kubeconfig, share, folder / f"{len(found)}-{i}", seconds)
                     for i, share in enumerate(shares) if share]  # fmt: skip
        try:
            found += [outcome for process in processes for outcome in process.outcomes()]
        finally:
            for process in processes:
                process.end()
    return found


class _Process:
    def __init__(self, assets: Path, kubeconfig: Path, specs: Sequence[str], folder: Path, seconds: float) -> None:
        self.specs, self.folder, self.seconds = specs, folder, seconds
        folder.mkdir(parents=True)
        focus = "|".join(f"{re.sub(r'[^A-Za-z0-9 ]', lambda sign: chr(92) + sign[0], spec)}$" for spec in specs)
        arguments = [
            "--provider=skeleton", "--num-nodes=0", "--allowed-not-ready-nodes=-1", "--minStartupPods=0",
            "--disable-log-dump=true", "--dump-logs-on-failure=false", "--e2e-verify-service-account=false",
            "--delete-namespace=false",
            f"--kubeconfig={kubeconfig}", f"--kubectl-path={assets / 'kubectl'}", "--ginkgo.no-color", f"--ginkgo.focus={focus}",
            f"--ginkgo.json-report={folder / 'report.json'}", f"--ginkgo.timeout={seconds:.0f}s", "--ginkgo.grace-period=5s",
        ]  # fmt: skip
        with open(folder / "log", "w") as log:
            self._child = subprocess.Popen([assets / "e2e.test", *arguments], cwd=folder, stdout=log, stderr=subprocess.STDOUT,
                                           stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip

    def outcomes(self) -> list[Outcome]:
        """Waits for the end."""
        try:
            self._child.wait(self.seconds + 60)
        except subprocess.TimeoutExpired:
            self.end()
        path = self.folder / "report.json"
        reports = json.loads(path.read_text()) if path.exists() and path.stat().st_size else []
        reported = {_name(spec): spec for suite in reports for spec in suite["SpecReports"] or () if spec["LeafNodeType"] == "It"}
        return [_outcome(name, reported.get(name)) for name in self.specs]

    def end(self) -> None:
        if self._child.poll() is None:
            os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()


def _name(spec: dict[str, object]) -> str:
    texts = spec["ContainerHierarchyTexts"] or []
    assert isinstance(texts, list)
    return " ".join([*texts, spec["LeafNodeText"]])


def _outcome(name: str, spec: dict[str, object] | None) -> Outcome:
    if spec is None:
        return Outcome(name, 0.0, LOST)
    taken = float(str(spec["RunTime"])) / 1e9
    if spec["State"] == "passed":
        return Outcome(name, taken, "")
    failure = spec.get("Failure") or {}
    assert isinstance(failure, dict)
    why = " ".join(str(failure.get("Message") or "").split())[:200]
    return Outcome(name, taken, why or f"it was {spec['State']}")
