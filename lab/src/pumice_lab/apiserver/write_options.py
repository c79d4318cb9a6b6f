"""Options of a write request, and warnings of fields that its kind has not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pumice_lab.apiserver.conversion import Conversion
from pumice_lab.apiserver.errors import bad_request
from pumice_lab.apiserver.granting import Granter
from pumice_lab.apiserver.policies import Policies
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.webhooks import Admission

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write request."""

    manager: str = "unknown"
    user: str = ""
    dry_run: bool = False
    validation: str = "Ignore"  # fieldValidation: Strict, Warn, Ignore
    warn: Callable[[str], None] = lambda text: None
    twice: list[str] = dataclasses.field(default_factory=list)  # keys that stood twice in what the client sent, as they are told
    managed: list[Json] | None = None  # ownership as server-side apply has worked it out
    admission: Admission | None = None  # who has to be asked before anything is stored
    conversion: Conversion = dataclasses.field(default_factory=Conversion)  # between the version asked for and the one stored
    policies: Policies | None = None  # what the cluster's policies say of it; nothing of what the server itself writes
    granter: Granter | None = None  # who is held to his own rights by what he writes; nobody where the server itself writes


def report_unknown(unknown: list[str], options: WriteOptions) -> None:
    """Unknown fields, and those that stood twice, as fieldValidation asks: refused, warned of, or dropped in silence."""
    problems = [f'unknown field "{path}"' for path in unknown] + options.twice
    if problems and options.validation == "Strict":
        raise bad_request("strict decoding error: " + ", ".join(problems))
    if problems and options.validation == "Warn":
        for problem in problems:
            options.warn(problem)
    options.twice.clear()  # told once, however often what became of the object is read


def not_typed(kind: Kind, value: Json, unknown: list[str]) -> str:
    metadata = value.get("metadata") or {}
    reported = [f".{path}: field not declared in schema" for path in unknown]
    why = reported[0] if len(reported) == 1 else "errors:\n  " + "\n  ".join(reported)
    what = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {kind.group}/{kind.version}, Kind={kind.kind}"
    return f"failed to create typed patch object ({what}): {why}"
