"""The single runs of a long benchmark, a line of JSON each: one that was cut off goes on where it stopped, and what is there
already is a result of as many runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Run = dict[str, float]


class KeptRuns:
    """The file of ``--runs``. Without one every run is played."""

    def __init__(self, file: str = "") -> None:
        self._file = Path(file) if file else None
        self._runs: dict[str, Run] = {}
        if self._file is not None and self._file.exists():
            whole = (line for line in self._file.read_text("utf-8").splitlines(keepends=True) if line.endswith("\n"))
            self._runs = {found["of"]: found["run"] for found in map(json.loads, whole)}

    def of(self, name: str, play: Callable[[], Run]) -> Run:
        """Return the run of that name, played now if it is not there."""
        if name not in self._runs:
            self._runs[name] = play()
            if self._file is not None:
                with self._file.open("a", encoding="utf-8") as lines:
                    lines.write(json.dumps({"of": name, "run": self._runs[name]}) + "\n")
        return self._runs[name]
