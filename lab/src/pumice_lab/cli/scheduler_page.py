"""The state of the scheduler of a cluster of this machine, from its pages."""

from __future__ import annotations

from typing import Any


def scheduler_problem(facts: dict[str, Any], patience: float = 5.0) -> str:
    """Return the problem that the scheduler reports of itself: why it is not ready, or that its configuration is refused."""
    if "scheduler" not in facts:
        return ""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    try:
        with urlopen(f"http://{facts['scheduler']}/readyz", timeout=patience) as answer:
            lines = answer.read().decode("utf-8", "replace").splitlines()
        return "; ".join(lines[1:])
    except HTTPError as refusal:
        return f"it places nothing, {refusal.read().decode('utf-8', 'replace')}"
    except (OSError, ValueError) as error:
        return f"it does not answer: {error}"
