"""The page that stands beside an experiment's figures: what was found on which card, for whoever has nobody to ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

GREETING = """\
`libvgpu.so` gives a program a share of a card: so many bytes of its memory, such a part of its time. Each line below is a
promise: what was measured here, what is wanted, and whether that holds. `E*.json` beside this page holds every figure.
"""
EMULATED = """\
**This is not a GPU.** The emulated machine played the card: the figures say that the experiments work, and nothing of a card.
"""


def verdict(results: Sequence[Mapping[str, Any]]) -> str:
    goals = [goal for result in results for goal in result["goals"]]
    met, early = sum(goal["met"] for goal in goals), [r["experiment"] for r in results if "ended early" in r]
    words = f"{met} of {len(goals)} promises hold"
    if early:
        words += f"; {', '.join(early)} ended with an error"
    left = sum("not run" in result for result in results)
    return words + (f"; {left} experiments were not run." if left else ".")


def render(device: str, results: Sequence[Mapping[str, Any]], about: Mapping[str, Any], minutes: float) -> str:
    found = f"**{verdict(results)}** It took {minutes:.1f} minutes."
    lines = [f"# libvgpu on {device.partition(';')[0]}", "", found, "", GREETING]
    lines += [EMULATED] if "not a GPU" in device else []
    lines += ["| about | |", "|---|---|", *(f"| {key} | {value} |" for key, value in about.items()), ""]
    for result in results:
        lines += ["", f"## {result['experiment']}: {result['title']}", ""]
        if "not run" in result:
            lines.append(f"Not run: {result['not run']}.")
        if "ended early" in result:
            lines.append(f"Ended with an error: `{result['ended early']}`")
        reported = {key: value for key, value in result["figures"].items() if isinstance(value, int | float | str)}
        if reported:
            lines += ["| figure | |", "|---|---|", *(f"| {key} | {value} |" for key, value in reported.items()), ""]
        if result["goals"]:
            lines += ["| promise | measured | wanted | holds |", "|---|---|---|---|", *(_row(goal) for goal in result["goals"])]
        lines += [f"- {part} was not run: {reason}" for part, reason in result["parts not run"].items()]
        lines += ["", *(f"![{name}]({picture})" for name, picture in result.get("pictures", {}).items())]
    return "\n".join(lines).rstrip() + "\n"


def _row(goal: Mapping[str, Any]) -> str:
    return f"| {goal['what']} | {goal['value']:g} {goal['unit']} | {goal['goal']} | {'yes' if goal['met'] else '**no**'} |"
