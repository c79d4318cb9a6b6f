"""Conformance: specs of Kubernetes' own e2e suite that pass on ``pumice up`` as it comes.

    make conformance [BENCH=--save]
    python -m benchmarks.conformance [--quick] [--save] [--only WORDS]

Counts the 160 specs that a kube-apiserver passes alone (kit/conformance_specs.txt). Those known to fail stand below with their
reasons; any other failure makes the result wrong. ``make conformance`` builds the suite, a quarter of an hour the first time on
two cores; without it nothing is run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from kit.conformance import Outcome, run_specs, specs
from kit.local_cluster import LocalCluster
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude

MINUTES = 4
_AUTOSCALING = "autoscaling/v1 is not served: of autoscalers the server knows version 2, and nothing acts by them"
LEFT_OUT = {
    "API priority and fairness should ensure that requests can be classified":
        "priority levels are kept and not obeyed: the server is fair to each client, whatever they say",
    "AggregatedDiscovery should support aggregated discovery interface [": _AUTOSCALING,
    "AggregatedDiscovery should support raw aggregated discovery endpoint": _AUTOSCALING,
    "Discovery should locate the groupVersion and a resource": _AUTOSCALING,
}  # fmt: skip


def reason(outcome: Outcome) -> str:
    """Why a spec that failed is known to; empty where it is not."""
    return next((why for words, why in LEFT_OUT.items() if words in outcome.spec), "")


def main(argv: list[str] | None = None) -> int:
    parser = arguments(__doc__, quick="every eighth spec")
    parser.add_argument("--assets", type=Path, default=Path(os.environ.get("KUBEBUILDER_ASSETS", "")), help="where e2e.test is")
    parser.add_argument("--only", default="", help="words that a spec's name has")
    parser.add_argument("--at-once", type=int, default=4, help="processes side by side")
    given = parser.parse_args(argv)
    assets = given.assets.resolve()
    if not (assets / "e2e.test").is_file():
        print("conformance: not run, for the suite is not built; make conformance builds it and runs this", file=sys.stderr)
        return 0
    chosen = [spec for spec in specs() if given.only in spec][:: 8 if given.quick else 1]
    with tempfile.TemporaryDirectory(prefix="pumice-conformance-", ignore_cleanup_errors=True) as folder:
        cluster = LocalCluster(Path(folder) / "cluster")
        cluster.up()
        began = time.monotonic()
        try:
            outcomes = run_specs(assets, cluster.data.kubeconfig, chosen, Path(folder) / "specs", at_once=given.at_once)
        finally:
            cluster.down()
    failed = sorted((outcome for outcome in outcomes if outcome.why), key=lambda outcome: outcome.spec)
    for outcome in failed:
        print(f"{outcome.spec}\n    {outcome.why}\n    {reason(outcome) or 'NOT KNOWN'}", file=sys.stderr)
    passed = len(outcomes) - len(failed)
    result = {
        "specs": len(outcomes), "passed": passed, "seconds": round(time.monotonic() - began),
        "failures": [{"spec": outcome.spec, "said": outcome.why, "reason": reason(outcome)} for outcome in failed],
    }  # fmt: skip
    whole = len(chosen) == len(specs())
    goals = goals_of("conformance", {"specs passed": passed}) if whole else []
    code = conclude("conformance", result, goals, keep=given.save and whole, quick=given.quick)
    assert all(reason(outcome) for outcome in failed), "specs failed that nobody knows to fail"
    return code


if __name__ == "__main__":
    sys.exit(main())
