"""``pumice lint`` on the mistakes of ``tests/golden/lint_mistakes.yaml``: each is told on its line, with what would be right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pumice.devices.lint import lint_files

MISTAKES = yaml.safe_load((Path(__file__).parents[3] / "golden" / "lint_mistakes.yaml").read_text("utf-8"))


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake["title"] for mistake in MISTAKES])
def test_the_mistake_is_told_with_its_line_and_what_would_be_right(mistake: dict[str, Any]) -> None:
    findings = lint_files({mistake["file"]: mistake["text"]})
    reported = [f"{finding.line}: {'error' if finding.error else 'warning'}: {finding.text}" for finding in findings
            if "has no effect yet" not in finding.text]  # no mistake: tests/scenarios/test_nothing_without_effect_is_silent.py
    assert reported == mistake["found"]
    assert reported
