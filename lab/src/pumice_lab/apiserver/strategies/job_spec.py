"""The spec of a Job, alone or in a CronJob: defaults and rules (pkg/apis/batch of Kubernetes 1.36, v1/defaults.go and
validation/validation.go)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pumice_lab.apiserver.errors import UNSAID, FieldProblem, duplicate, invalid_value, required, unsupported
from pumice_lab.apiserver.names import bad_qualified, bad_subdomain
from pumice_lab.apiserver.strategies.base import at

Json = dict[str, Any]
Problems = list[FieldProblem]

IMMUTABLE = ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy")
MOST_LIMIT = 2**31 - 1
_NOT_NEGATIVE = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished",
                 "backoffLimitPerIndex", "maxFailedIndexes")  # fmt: skip
_MANY, _MOST_OF_MANY = 100_000, 10_000
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def default_job_spec(spec: Json) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6 if spec.get("backoffLimitPerIndex") is None else MOST_LIMIT)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")


def default_patterns(spec: Json) -> None:
    for rule in at(spec, "podFailurePolicy.rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern.setdefault("status", "True")


def validate_job_spec(spec: Json, path: str) -> Problems:
    problems = [
        _negative(f"{path}.{field}", spec[field]) for field in _NOT_NEGATIVE if (spec.get(field) or 0) < 0
    ]
    if spec.get("managedBy") is not None:
        problems += _managed_by(spec["managedBy"], f"{path}.managedBy")
    problems += _mode(spec, path)
    problems += _failure_policy(spec, f"{path}.podFailurePolicy")
    if (policy := spec.get("successPolicy")) is not None:
        if spec.get("completionMode") != "Indexed":
            problems.append(invalid_value(f"{path}.successPolicy", policy, "requires indexed completion mode"))
        else:
            problems += _success_policy(policy, int(spec.get("completions") or 0), f"{path}.successPolicy")
    if (replaces := spec.get("podReplacementPolicy")) is not None:
        known = ("Failed",) if spec.get("podFailurePolicy") else ("Failed", "TerminatingOrFailed")
        if replaces not in known:
            problems.append(unsupported(f"{path}.podReplacementPolicy", replaces, known))
    return problems + _restart_policy(spec, f"{path}.template.spec.restartPolicy")


def validate_job_update(spec: Json, old: Json) -> Problems:
    problems = [
        invalid_value(f"spec.{field}", spec.get(field), "field is immutable")
        for field in IMMUTABLE if spec.get(field) != old.get(field)
    ]  # fmt: skip
    if spec.get("completions") != old.get("completions"):
        detail = ""
        if spec.get("completionMode") != "Indexed":
            detail = "field is immutable"
        elif spec.get("completions") not in (None, spec.get("parallelism")):
            detail = "can only be modified in tandem with spec.parallelism"
        if detail:
            problems.append(invalid_value("spec.completions", spec.get("completions"), detail))
    return problems


def _managed_by(name: str, path: str) -> Problems:
    domain, _, rest = name.partition("/")
    problems: Problems = []
    if not name:
        problems.append(required(path))
    elif not domain or not rest:
        problems.append(invalid_value(path, name, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        if why := bad_subdomain(domain):
            problems.append(invalid_value(path, domain, why))
        if not _PATH.fullmatch(rest):
            problems.append(invalid_value(path, rest, f"Invalid path (regex used for validation is '{_PATH.pattern}')"))
    if len(name) > 63:
        problems.append(FieldProblem("FieldValueTooLong", path, "may not be more than 63 bytes", UNSAID))
    return problems


def _mode(spec: Json, path: str) -> Problems:
    """Validate the fields that depend on completionMode."""
    mode, completions, most = spec.get("completionMode") or "NonIndexed", spec.get("completions"), spec.get("maxFailedIndexes")
    per_index, parallelism = spec.get("backoffLimitPerIndex"), int(spec.get("parallelism") or 0)
    problems: Problems = []
    if most is not None and per_index is None:
        problems.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if mode == "NonIndexed":
        return problems + [
            invalid_value(f"{path}.{field}", spec[field], "requires indexed completion mode")
            for field in ("backoffLimitPerIndex", "maxFailedIndexes") if spec.get(field) is not None
        ]  # fmt: skip
    if mode != "Indexed":
        return [*problems, unsupported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))]
    if completions is None:
        problems.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if parallelism > _MANY:
        detail = f"must be less than or equal to {_MANY} when completion mode is Indexed"
        problems.append(invalid_value(f"{path}.parallelism", parallelism, detail))
    if most is not None and completions is not None and most > completions:
        problems.append(invalid_value(f"{path}.maxFailedIndexes", most, "must be less than or equal to completions"))
    if most is not None and most > _MANY:
        problems.append(invalid_value(f"{path}.maxFailedIndexes", most, f"must be less than or equal to {_MANY}"))
    if completions is not None and completions > _MANY and per_index is not None:
        if most is None:
            problems.append(required(f"{path}.maxFailedIndexes", f"must be specified when completions is above {_MANY}"))
        detail = (f"must be less than or equal to {_MOST_OF_MANY} when completions are above {_MANY} "
                  "and used with backoff limit per index")
        problems += [
            invalid_value(f"{path}.{field}", spec[field], detail)
            for field in ("parallelism", "maxFailedIndexes") if (spec.get(field) or 0) > _MOST_OF_MANY
        ]  # fmt: skip
    return problems


def _failure_policy(spec: Json, path: str) -> Problems:
    rules: Sequence[Json] = at(spec, "podFailurePolicy.rules") or ()
    names = {entry.get("name") for kind in ("containers", "initContainers") for entry in at(spec, f"template.spec.{kind}") or ()}
    problems = _too_many(f"{path}.rules", len(rules), 20)
    for place, rule in enumerate(rules):
        here = f"{path}.rules[{place}]"
        action, codes, conditions = rule.get("action"), rule.get("onExitCodes"), rule.get("onPodConditions")
        if action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            problems.append(invalid_value(f"{here}.action", action, "requires the backoffLimitPerIndex to be set"))
        problems += _one_of(f"{here}.action", action, _ACTIONS)
        if codes is not None:
            problems += _exit_codes(codes, names, f"{here}.onExitCodes")
        problems += _patterns(conditions or (), f"{here}.onPodConditions")
        if (codes is not None) == bool(conditions):
            detail = "specifying both OnExitCodes and OnPodConditions is not supported" if conditions else (
                "specifying one of OnExitCodes and OnPodConditions is required")
            problems.append(invalid_value(here, UNSAID, detail))
    return problems


def _patterns(patterns: Sequence[Json], path: str) -> Problems:
    problems = _too_many(path, len(patterns), 20)
    for place, pattern in enumerate(patterns):
        if why := bad_qualified(pattern.get("type") or ""):
            problems.append(invalid_value(f"{path}[{place}].type", pattern.get("type") or "", why))
        problems += _one_of(f"{path}[{place}].status", pattern.get("status"), ("False", "True", "Unknown"))
    return problems


def _exit_codes(codes: Json, names: set[Any], path: str) -> Problems:
    operator, values = codes.get("operator"), codes.get("values") or []
    problems = _one_of(f"{path}.operator", operator, ("In", "NotIn"))
    name = codes.get("containerName")
    if name is not None and name not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        problems.append(invalid_value(f"{path}.containerName", name, detail))
    if not values:
        problems.append(invalid_value(f"{path}.values", values, "at least one value is required"))
    problems += _too_many(f"{path}.values", len(values), 255)
    seen: set[int] = set()
    for place, value in enumerate(values):
        if operator == "In" and value == 0:
            problems.append(invalid_value(f"{path}.values[{place}]", value, "must not be 0 for the In operator"))
        if value in seen:
            problems.append(duplicate(f"{path}.values[{place}]", value))
        seen.add(value)
    if values != sorted(values):
        problems.append(invalid_value(f"{path}.values", values, "must be ordered"))
    return problems


def _success_policy(policy: Json, completions: int, path: str) -> Problems:
    rules: Sequence[Json] = policy.get("rules") or ()
    if not rules:
        return [required(f"{path}.rules", "at least one rules must be specified when the successPolicy is specified")]
    problems = _too_many(f"{path}.rules", len(rules), 20)
    for place, rule in enumerate(rules):
        here = f"{path}.rules[{place}]"
        count, indexes = rule.get("succeededCount"), rule.get("succeededIndexes")
        total = 0
        if count is None and indexes is None:
            problems.append(required(here, "at least one of succeededCount or succeededIndexes must be specified"))
        if indexes is not None:
            if len(indexes) > 64 * 1024:
                detail = "may not be more than 65536 bytes"
                problems.append(FieldProblem("FieldValueTooLong", f"{here}.succeededIndexes", detail, UNSAID))
            try:
                total = sum(last - first + 1 for first, last in runs_of(indexes, completions))
            except ValueError as why:
                detail = f"error parsing succeededIndexes: {why}"
                problems.append(invalid_value(f"{here}.succeededIndexes", indexes, detail))
        if count is not None:
            problems += _count(count, completions, None if indexes is None else total, f"{here}.succeededCount")
    return problems


def _count(count: int, completions: int, named: int | None, path: str) -> Problems:
    problems = [_negative(path, count)] if count < 0 else []
    for most, what in ((completions, "specified completions"), (named, "indexes in the specified succeededIndexes field")):
        if most is not None and count > most:
            problems.append(invalid_value(path, count, f"must be less than or equal to {most} (the number of {what})"))
    return problems


def runs_of(text: str, completions: int) -> Iterator[tuple[int, int]]:
    """Runs of indexes as written; raises ValueError with what is wrong with them."""
    before: int | None = None
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            raise ValueError(f'the fragment "{part}" violates the requirement that an index interval can have at most two '
                             "parts separated by '-'")
        for end in ends:
            if not re.fullmatch(r"\+?[0-9]{1,18}", end):
                raise ValueError(f'cannot convert string to integer for index: "{end}"')
            if int(end) >= completions:
                raise ValueError(f'too large index: "{end}"')
        first, last = int(ends[0]), int(ends[-1])
        if len(ends) == 2 and first >= last:
            raise ValueError(f"non-increasing order, previous: {first}, current: {last}")
        if before is not None and before >= first:
            raise ValueError(f"non-increasing order, previous: {before}, current: {first}")
        yield first, last
        before = last


def _restart_policy(spec: Json, path: str) -> Problems:
    policy = at(spec, "template.spec.restartPolicy") or "Always"
    known = ("OnFailure", "Never")
    if policy == "Always":
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in known:
        return [unsupported(path, policy, known)]
    if policy != "Never" and spec.get("podFailurePolicy") is not None:
        return [invalid_value(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _one_of(path: str, value: str | None, known: Sequence[str]) -> Problems:
    if not value:
        return [required(path, "valid values: [" + " ".join(f'"{word}"' for word in known) + "]")]
    return [] if value in known else [unsupported(path, value, known)]


def _too_many(path: str, count: int, most: int) -> Problems:
    return [FieldProblem("FieldValueTooMany", path, f"must have at most {most} items", count)] if count > most else []


def _negative(path: str, value: int) -> FieldProblem:
    return invalid_value(path, value, "must be greater than or equal to 0")
