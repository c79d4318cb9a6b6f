"""The controller's ``/metrics``: PodGroups by queue and phase, and how Jobs end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pumice.metrics.text import Histogram, Rendered, counter, exponential, gauge, render
from pumice.wire.share_hours import MEASURES, Key

PHASES = ("Inqueue", "Pending", "Running", "Unknown", "Completed")

Ends = Mapping[tuple[str, str], int]
"""Number of events, by Job (namespace/name) and queue."""


def pod_creation_latency() -> Histogram:
    return Histogram("volcano_controller_job_to_pod_creation_latency_milliseconds",
                     "From a Job's creation to that of its first pod", exponential(50, 60000, 30))  # fmt: skip


def controller_page(queues: Iterable[str], groups: Iterable[tuple[str, str]], completed: Ends, failed: Ends,
                    latency: Histogram, share_hours: Mapping[Key, Sequence[int]] = MappingProxyType({})) -> str:  # fmt: skip
    """``queues`` are the names of those that there are, ``groups`` the queue and phase of each PodGroup. ``share_hours``: sums
    of ``wire.share_hours`` by key."""
    names, counts = sorted(queues), Counter(groups)
    families: list[Rendered] = [
        gauge(f"volcano_queue_pod_group_{phase.lower()}_count", f"PodGroups in phase {phase}",
              [({"queue_name": name}, counts[name, phase]) for name in names])
        for phase in PHASES
    ]  # fmt: skip
    for phase, ends in (("completed", completed), ("failed", failed)):
        samples = [({"job_name": job, "queue_name": queue}, times) for (job, queue), times in sorted(ends.items())]
        families.append(counter(f"volcano_job_{phase}_phase_count", f"How often a Job was {phase}", samples))
    return render([*families, latency, *_share_hours(share_hours)])


def _share_hours(totals: Mapping[Key, Sequence[int]]) -> list[Rendered]:
    """Hours of cards and of parts of them; nothing where nobody has held any."""
    samples = [
        ({"namespace": namespace, "queue": queue, "model": model, "kind": kind, "measure": measure}, amount / 3_600_000)
        for (namespace, queue, model, kind), sums in sorted(totals.items())
        for measure, amount in zip(MEASURES, sums, strict=True)
    ]
    text = "Hours of shares of cards that were held, and of the parts of cards that were requested, limited to and used"
    return [counter("pumice_share_hours_total", text, samples)] if samples else []


# -- The admission server's `/metrics`; all of it is ours ------------------------------------------------------------


def answer_seconds() -> Histogram:
    return Histogram("pumice_webhook_answer_seconds", "From an ask to its answer", exponential(0.0005, 10, 15))


def webhook_page(answers: Mapping[tuple[str, str], int], seconds: Histogram) -> str:
    """``answers``: how often, by path and outcome."""
    samples = [({"path": path, "outcome": outcome}, times) for (path, outcome), times in sorted(answers.items())]
    return render([counter("pumice_webhook_answers_total", "Answers by path and outcome", samples), seconds])
