"""One finding."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pumice.model.errors import BadInput

_LINE = re.compile(r"^(?:.*? )?line (\d+): (.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of lint, written ``file:line: text``; an error makes the file unusable, a warning makes a part of it do
    nothing or something else."""

    file: str
    line: int
    text: str
    error: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {'error' if self.error else 'warning'}: {self.text}"

    @classmethod
    def from_text(cls, file: str, text: str, *, error: bool = False, line: int = 1) -> Finding:
        """From a sentence that may begin with its line."""
        match = _LINE.match(text.removeprefix(f"{file}: "))
        return cls(file, int(match[1]), match[2], error) if match else cls(file, line, text, error)

    @classmethod
    def from_error(cls, file: str, error: BadInput, line: int = 1) -> Finding:
        return cls.from_text(file, str(error), error=True, line=line)
