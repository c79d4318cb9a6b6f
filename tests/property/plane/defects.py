"""Deliberate defects, planted into a module when it is loaded: judges are worth what they find."""

from __future__ import annotations

import importlib.util
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Defect:
    name: str
    part: str
    module: str
    old: str
    new: str
    trial: str = ""
    """Where the second trial from outside found it, put back: that trial's number."""

    def plant(self) -> None:
        """Load the module with the defect, before anybody else imports it. Raises AssertionError where its line is gone."""
        assert self.module not in sys.modules, f"{self.module} is imported already"
        spec = importlib.util.find_spec(self.module)
        assert spec is not None, self.module
        assert spec.origin is not None, self.module
        module = importlib.util.module_from_spec(spec)
        sys.modules[self.module] = module
        exec(compile(self.broken(Path(spec.origin).read_text("utf-8")), spec.origin, "exec"), module.__dict__)
        parent, _, name = self.module.rpartition(".")
        setattr(sys.modules[parent], name, module)

    def broken(self, source: str) -> str:
        assert source.count(self.old) == 1, f"{self.name}: {self.module} has its line {source.count(self.old)} times"
        return source.replace(self.old, self.new)


def defects() -> list[Defect]:
    found = tomllib.loads(Path(__file__).with_name("defects.toml").read_text("utf-8"))
    return [Defect(name.replace("_", " "), **fields) for name, fields in found.items()]
