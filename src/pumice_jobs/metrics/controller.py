"""The controller's ``/metrics``: PodGroups by queue and phase, and how Jobs end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pumice.metrics.text import Histogram, Rendered, counter, exponential, gauge, render

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")

Ends = Mapping[tuple[str, str], int]
"""How often, by Job (namespace/name) and queue."""


def pod_creation_latency() -> Histogram:
    return Histogram("volcano_controller_job_to_pod_creation_latency_milliseconds",
                     "From a Job's creation to that of its first pod", exponential(50, 60000, 30))  # fmt: skip


def controller_page(queues: Iterable[str], groups: Iterable[tuple[str, str]], completed: Ends, failed: Ends,
                    latency: Histogram) -> str:  # fmt: skip
    """``queues`` are the names of those that there are, ``groups`` the queue and phase of each PodGroup."""
    names, counts = sorted(queues), Counter(groups)
    families: list[Rendered] = [
        gauge(f"volcano_queue_pod_group_{phase.lower()}_count", f"PodGroups in phase {phase}",
              [({"queue_name": name}, counts[name, phase]) for name in names])
        for phase in PHASES
    ]  # fmt: skip
    for phase, ends in (("completed", completed), ("failed", failed)):
        samples = [({"job_name": job, "queue_name": queue}, times) for (job, queue), times in sorted(ends.items())]
        families.append(counter(f"volcano_job_{phase}_phase_count", f"How often a Job was {phase}", samples))
    return render([*families, latency])


# -- The admission server's `/metrics`; all of it is ours ------------------------------------------------------------


def answer_seconds() -> Histogram:
    return Histogram("pumice_webhook_answer_seconds", "From an ask to its answer", exponential(0.0005, 10, 15))


def webhook_page(answers: Mapping[tuple[str, str], int], seconds: Histogram) -> str:
    """``answers``: how often, by path and outcome."""
    samples = [({"path": path, "outcome": outcome}, times) for (path, outcome), times in sorted(answers.items())]
    return render([counter("pumice_webhook_answers_total", "Answers by path and outcome", samples), seconds])
