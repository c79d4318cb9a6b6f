"""Admission policies in CEL: what is changed of a write, and whether it is let in.

Sources: Kubernetes "Validating Admission Policy" and "Mutating Admission Policy". A policy takes effect by its bindings; one that
cannot be evaluated refuses, unless its failurePolicy says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from pumice.cel.running import ALL_STEPS, LONGEST_MESSAGE, Budget
from pumice.cel.values import CelError, as_json, check_names
from pumice.wire.objects import selects
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.errors import ApiFailure
from pumice_lab.apiserver.expressions import Question
from pumice_lab.apiserver.http_types import User
from pumice_lab.apiserver.match_rules import Write, concerns
from pumice_lab.apiserver.patch.json_patch import apply_json_patch
from pumice_lab.apiserver.patch.strategic import apply_strategic_patch
from pumice_lab.apiserver.rights import Rights
from pumice_lab.apiserver.schema.decode import decode
from pumice_lab.apiserver.strategies.expressions import GROUP, NAMES

Json = dict[str, Any]
VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
_POLICIES: Final = {kind: f"{GROUP}/{kind.lower().removesuffix('y')}ies" for kind in (VALIDATING, MUTATING)}
_BINDINGS: Final = {kind: f"{GROUP}/{kind.lower()}bindings" for kind in (VALIDATING, MUTATING)}
_CODES: Final = {"Invalid": 422, "Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


@dataclass(slots=True)
class Policies:
    """Of one request."""

    backend: Backend
    rights: Rights
    user: User
    warn: Callable[[str], None]
    budget: Budget = field(default_factory=lambda: Budget(ALL_STEPS))

    def mutated(self, write: Write, *, again: bool = False) -> Json:
        """The object as the mutating policies change it; one that wants to see what later ones made of it is asked once more.
        ``again``: somebody else has changed it since, and who wants to is asked. Raises Invalid or InternalError."""
        seen: set[tuple[str, str]] = set()
        due: set[tuple[str, str]] = set()
        for first in (not again, False):
            for policy, binding, question in self._requested(MUTATING, write):
                name = (policy["metadata"]["name"], binding["metadata"]["name"])
                curious = policy["spec"].get("reinvocationPolicy") == "IfNeeded"
                if not first and name not in due and not (again and curious):
                    continue
                before = write.value
                self._mutate(policy, binding, question)
                if write.value != before:
                    due, seen = due | seen, set()
                if curious:
                    seen.add(name)
            if again or not due:
                break
        return write.value

    def _mutate(self, policy: Json, binding: Json, question: Question) -> None:
        variables, write = _defined(policy, question), question.write
        for mutation in policy["spec"].get("mutations") or ():
            try:
                write.value = _mutated(mutation, question, variables)
            except (CelError, ApiFailure, ValueError) as problem:
                if not _lenient(policy):
                    named = _named(MUTATING, policy, binding)
                    raise self._denied(write, f"{named} denied request: {problem}", "Invalid") from None

    def check(self, write: Write) -> None:
        """Raises what a policy says that does not let it in."""
        for policy, binding, question in self._requested(VALIDATING, write):
            variables = _defined(policy, question)
            for validation in policy["spec"].get("validations") or ():
                message, reason = _judged(policy, validation, question, variables)
                if not message:
                    continue
                actions = binding["spec"].get("validationActions") or ()
                named = _named(VALIDATING, policy, binding)
                if "Warn" in actions:
                    self.warn(f"Validation failed for {named}: {message}")
                if "Deny" in actions:
                    raise self._denied(write, f"{named} denied request: {message}", reason)

    def _requested(self, kind: str, write: Write) -> Iterator[tuple[Json, Json, Question]]:
        """Policies that a write concerns, each once a binding and parameter."""
        storage = self.backend.storage
        policies = {stored.name: stored for stored in storage.objects(_POLICIES[kind])}
        bindings = sorted(storage.objects(_BINDINGS[kind]), key=lambda stored: stored.name) if policies else []
        for stored in bindings:
            binding = stored.value()
            found = policies.get(binding["spec"].get("policyName", ""))
            if found is None:
                continue
            policy = found.value()
            if not self._bound(policy, binding, write):
                continue
            try:
                question = Question(self.backend, self.rights, self.user, write, None, self.budget)
                if not question.holds(policy["spec"].get("matchConditions")):
                    continue
                parameters = list(self._params(policy, binding, write))
            except (CelError, LookupError) as problem:
                if _lenient(policy):
                    continue
                why = f"{_named(kind, policy, binding)} denied request: {problem.args[0]}"
                raise self._denied(write, why, "Invalid") from None
            for params in parameters:
                yield policy, binding, Question(self.backend, self.rights, self.user, write, params, self.budget)

    def _bound(self, policy: Json, binding: Json, write: Write) -> bool:
        about = policy["spec"].get("matchConstraints") or {}
        narrowed = binding["spec"].get("matchResources")
        everything = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*", "*/*"]}]
        return concerns(self.backend, about, about.get("resourceRules") or (), write) and (
            not narrowed or concerns(self.backend, narrowed, narrowed.get("resourceRules") or everything, write)
        )

    def _params(self, policy: Json, binding: Json, write: Write) -> Iterator[Any]:
        """Raises LookupError where there is none and that is refused."""
        asked, reference = policy["spec"].get("paramKind"), binding["spec"].get("paramRef")
        if not asked or not reference:
            yield None
            return
        group, _, version = asked["apiVersion"].rpartition("/")
        kind = next((k for k in self.backend.registry.of(group, version) if k.kind == asked["kind"]), None)
        if kind is None:
            raise LookupError(f"failed to configure policy: no kind {asked['kind']} in {asked['apiVersion']}")
        namespace = (reference.get("namespace") or write.metadata.get("namespace", "")) if kind.namespaced else ""
        if kind.namespaced and not namespace:
            why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise LookupError(f"failed to configure binding: {why}")
        if reference.get("name"):
            one = self.backend.read(kind.storage, namespace, reference["name"])
            found = [] if one is None else [one]
        else:
            values = [stored.value() for stored in self.backend.storage.objects(kind.storage, namespace)]
            selector = reference.get("selector") or {}
            found = [value for value in values if selects(selector, value["metadata"].get("labels") or {})]
        if not found and reference.get("parameterNotFoundAction", "Deny") == "Deny":
            why = "no params found for policy binding with `Deny` parameterNotFoundAction"
            raise LookupError(f"failed to configure binding: {why}")
        yield from found

    def _denied(self, write: Write, text: str, reason: str) -> ApiFailure:
        kind, name = write.kind, write.metadata.get("name", "")
        qualified = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        group = {"group": kind.group} if kind.group else {}
        details = {"name": name, **group, "kind": kind.plural, "causes": [{"message": text}]}
        return ApiFailure(_CODES.get(reason, 422), reason, f'{qualified} "{name}" is forbidden: {text}', details)


def _named(kind: str, policy: Json, binding: Json) -> str:
    return f"{kind} '{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"


def _lenient(policy: Json) -> bool:
    """Return True if a policy that cannot be evaluated lets everything in."""
    found: str = policy["spec"].get("failurePolicy", "Fail")
    return found == "Ignore"


def _defined(policy: Json, question: Question) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    for each in policy["spec"].get("variables") or ():
        known = dict(found)
        found[each["name"]] = partial(question.run, each["expression"], NAMES, known)
    return found


def _judged(policy: Json, validation: Json, question: Question, variables: Mapping[str, Callable[[], Any]]) -> tuple[str, str]:
    """(Why not, reason); an empty text lets it in."""
    text = validation["expression"]
    try:
        if question.run(text, NAMES, variables) is True:
            return "", ""
    except CelError as problem:
        if _lenient(policy):
            return "", ""
        return f"expression '{text}' resulted in error: {problem}", "Invalid"
    message = (validation.get("message") or "").strip() or f"failed expression: {text.strip()}"
    if validation.get("messageExpression"):
        try:
            said = question.run(validation["messageExpression"], NAMES, variables)
            message = said.strip() if isinstance(said, str) and 0 < len(said.strip()) <= LONGEST_MESSAGE else message
        except CelError:
            pass  # the validation's message serves instead
    return message, validation.get("reason") or "Invalid"


def _mutated(mutation: Json, question: Question, variables: Mapping[str, Callable[[], Any]]) -> Json:
    write = question.write
    if mutation.get("patchType") == "JSONPatch":
        steps = question.run(mutation["jsonPatch"]["expression"], NAMES, variables)
        found = apply_json_patch(write.value, as_json(steps))
    else:
        made = question.run(mutation["applyConfiguration"]["expression"], NAMES, variables)
        applied = as_json(made)
        if not isinstance(applied, dict):
            raise CelError("an ApplyConfiguration's expression makes an Object")
        check_names(made, "Object")
        unknown: list[str] = []
        decode(write.kind.shape, applied, unknown, write.kind.kind, keep_zeros=True)
        if unknown:
            raise CelError(f".{unknown[0]}: field not declared in schema")
        found = apply_strategic_patch(write.value, applied, write.kind.shape)
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        raise CelError("the mutation leaves no object")
    return found
