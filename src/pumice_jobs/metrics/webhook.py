"""The admission server's ``/metrics``; all of it is ours."""

from __future__ import annotations

from collections.abc import Mapping

from pumice.metrics.text import Histogram, counter, exponential, render


def answer_seconds() -> Histogram:
    return Histogram("pumice_webhook_answer_seconds", "From an ask to its answer", exponential(0.0005, 10, 15))


def webhook_page(answers: Mapping[tuple[str, str], int], seconds: Histogram) -> str:
    """``answers``: how often, by path and outcome."""
    samples = [({"path": path, "outcome": outcome}, times) for (path, outcome), times in sorted(answers.items())]
    return render([counter("pumice_webhook_answers_total", "Answers by path and outcome", samples), seconds])
