"""Flags of the benchmarks over an API server, and how they say what they are at."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.results import arguments

from benchmarks.end_to_end.server import chosen_kind
from benchmarks.report import median

_began = time.monotonic()


@dataclass(frozen=True, slots=True)
class Options:
    """``server`` is "kube" or "embedded". ``steady_pods`` arrive in a run at a steady rate."""

    server: str
    nodes: int
    pods: int
    running: int
    repeats: int
    steady_pods: int
    quick: bool
    save: bool


def options_of(about: str | None, argv: Sequence[str] | None, *, nodes: int, pods: int, repeats: int,
               running: int = 0) -> Options:  # fmt: skip
    parser = arguments(about, quick="one repeat and a twentieth of everything")
    parser.add_argument("--server", choices=("auto", "kube", "embedded"), default="auto",
                        help="auto: the real kube-apiserver when KUBEBUILDER_ASSETS is set")  # fmt: skip
    parser.add_argument("--nodes", type=int, default=nodes)
    parser.add_argument("--pods", type=int, default=pods)
    parser.add_argument("--running", type=int, default=running, help="pods that are bound before")
    parser.add_argument("--repeats", type=int, default=repeats)
    given = parser.parse_args(argv)
    part = 20 if given.quick else 1
    return Options(
        server=chosen_kind(given.server), nodes=given.nodes // part, pods=given.pods // part, running=given.running // part,
        repeats=1 if given.quick else given.repeats, steady_pods=20 if given.quick else 300, quick=given.quick, save=given.save,
    )  # fmt: skip


def progress(what: str, figures: Mapping[str, float]) -> None:
    """One line on stderr."""
    text = " ".join(f"{key}={value:.4g}" for key, value in figures.items())
    print(f"[{time.monotonic() - _began:6.1f} s] {what}: {text}", file=sys.stderr, flush=True)


def medians(runs: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Each figure's median and spread over the repeats."""
    return {key: median([run[key] for run in runs]) for key in runs[0]}
