"""The controller's ``/metrics``: PodGroups by queue and phase (spec volcano-core 22)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pumice.metrics.text import gauge, render

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")


def controller_page(queues: Iterable[str], groups: Iterable[tuple[str, str]]) -> str:
    """``queues`` are the names of those that there are, ``groups`` the queue and phase of each PodGroup."""
    names, counts = sorted(queues), Counter(groups)
    return render(
        gauge(f"volcano_queue_pod_group_{phase.lower()}_count", f"PodGroups in phase {phase}",
              [({"queue_name": name}, counts[name, phase]) for name in names])
        for phase in PHASES
    )  # fmt: skip
