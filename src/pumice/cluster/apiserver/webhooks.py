"""Admission webhooks (Kubernetes "Dynamic Admission Control"): who is asked about a write, and what becomes of it.

A write runs without a pause from the read of an object to the staging of its new state, and an ask takes its time. So a write
that somebody wants to be asked about is tried first and given up where it would be stored; then they are asked; then it is
made again with their answers at hand, provided that it still replaces what they were shown.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import copy
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pumice.cluster.apiserver.backend import Backend
from pumice.cluster.apiserver.concerns import Write, concerns
from pumice.cluster.apiserver.errors import ApiFailure, forbidden
from pumice.cluster.apiserver.expressions import Question, review_of
from pumice.cluster.apiserver.http_types import Request, User
from pumice.cluster.apiserver.patch.json_patch import apply_json_patch
from pumice.cluster.apiserver.rights import Rights
from pumice.cluster.apiserver.strategies.expressions import GROUP
from pumice.cluster.cel.values import CelError

Json = dict[str, Any]
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"
TRIES = 5
"""For a write whose object others change while it is asked about."""
PATIENCE = 10.0
LARGEST = 3 << 20
"""Bytes of an answer that are read."""


class Waits(Exception):
    """Somebody has to be asked first."""

    def __init__(self, write: Write) -> None:
        super().__init__(write.operation)
        self.write = write


@dataclass(slots=True)
class Admission:
    """Of one request: the answers so far."""

    webhooks: Webhooks
    answers: dict[tuple[str, str, str], tuple[str, Json]] = field(default_factory=dict)

    def admit(self, write: Write) -> Json:
        """The object as it may be stored. Raises Waits."""
        known = self.answers.get(write.about)
        if known is not None and known[0] == write.replaced:
            return copy.deepcopy(known[1])
        if next(self.webhooks.concerned(write), None) is None:
            return write.value
        raise Waits(Write(write.operation, write.kind, copy.deepcopy(write.value), copy.deepcopy(write.old), write.subresource,
                          write.dry_run))  # fmt: skip

    async def ask(self, write: Write, request: Request) -> None:
        """Raises Forbidden, or whatever they answer, or InternalError where one that has to be asked gives no answer."""
        replaced = write.replaced
        self.answers[write.about] = replaced, await self.webhooks.decide(write, request)


@dataclass(slots=True)
class Webhooks:
    backend: Backend
    rights: Rights

    def any(self) -> bool:
        storage = self.backend.storage
        return any(next(iter(storage.objects(resource)), None) is not None for resource in (MUTATING, VALIDATING))

    def concerned(self, write: Write) -> Iterator[tuple[Json, bool]]:
        """(webhook, whether it mutates), in the order in which they are asked."""
        for resource in (MUTATING, VALIDATING):
            for stored in sorted(self.backend.storage.objects(resource), key=lambda found: found.name):
                for hook in stored.value().get("webhooks") or ():
                    if concerns(self.backend, hook, hook.get("rules") or (), write):
                        yield hook, resource == MUTATING

    async def decide(self, write: Write, request: Request) -> Json:
        for hook, mutates in list(self.concerned(write)):
            if not self._meant(hook, write, request.user):
                continue
            if write.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
                raise ApiFailure(400, "BadRequest", f'admission webhook "{hook["name"]}" does not support dry run')
            try:
                answer = await self._call(hook, _review(write, request, self.backend.uid()))
            except _NoAnswer as problem:
                if hook.get("failurePolicy", "Fail") == "Ignore":
                    continue
                why = f'Internal error occurred: failed calling webhook "{hook["name"]}": {problem}'
                raise ApiFailure(500, "InternalError", why) from problem
            request.warnings.extend(str(text) for text in answer.get("warnings") or ())
            if answer.get("allowed") is not True:
                raise _denied(hook["name"], answer.get("status") or {})
            if mutates and answer.get("patch"):
                write.value = _patched(hook["name"], write.value, answer)
        return write.value

    def _meant(self, hook: Json, write: Write, user: User) -> bool:
        """Whether its ``matchConditions`` hold. Raises Forbidden where that cannot be told."""
        try:
            return Question(self.backend, self.rights, user, write).holds(hook.get("matchConditions"))
        except CelError as problem:
            if hook.get("failurePolicy", "Fail") == "Ignore":
                return False
            kind, name = write.kind, write.metadata.get("name", "")
            raise forbidden(kind.group, kind.plural, name, str(problem)) from None

    async def _call(self, hook: Json, review: Json) -> Json:
        url, host = self._place(hook["clientConfig"])
        try:
            tls = ssl.create_default_context(cadata=_pem(hook["clientConfig"].get("caBundle", "")))
            timeout = aiohttp.ClientTimeout(total=float(hook.get("timeoutSeconds") or PATIENCE))
            async with aiohttp.ClientSession(timeout=timeout) as session, session.post(
                url, json=review, ssl=tls, server_hostname=host or None
            ) as response:  # fmt: skip
                body = await response.content.read(LARGEST)
                if response.status != 200:
                    raise _NoAnswer(f'failed to call webhook: the server answered {response.status} for "{url}"')
            answer = json.loads(body)["response"]
            if answer["uid"] != review["request"]["uid"]:
                raise _NoAnswer(f'expected response.uid="{review["request"]["uid"]}"')
        except TimeoutError as problem:
            raise _NoAnswer(f'failed to call webhook: Post "{url}": context deadline exceeded') from problem
        except (aiohttp.ClientError, OSError, ssl.SSLError) as problem:
            raise _NoAnswer(f'failed to call webhook: Post "{url}": {problem}') from problem
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise _NoAnswer(f"received invalid webhook response: {problem!r}") from problem
        if not isinstance(answer, dict):
            raise _NoAnswer("received invalid webhook response: no object")
        return answer

    def _place(self, client: Json) -> tuple[str, str]:
        """(URL, name on the certificate where it is another one than the URL's)."""
        if client.get("url"):
            return client["url"], ""
        asked = client.get("service") or {}
        namespace, name, port = asked.get("namespace", ""), asked.get("name", ""), asked.get("port", 443)
        service = self.backend.read("v1/services", namespace, name)
        if service is None:
            raise _NoAnswer(f'failed to call webhook: service "{name}" not found')
        target = next((p.get("targetPort", port) for p in service["spec"].get("ports") or () if p.get("port") == port), port)
        selector = service["spec"].get("selector") or {}
        for stored in self.backend.storage.objects("v1/pods", namespace):
            pod = stored.value()
            labels = pod["metadata"].get("labels") or {}
            if selector and selector.items() <= labels.items() and (address := _ready_at(pod, target)):
                return f"https://{address}{asked.get('path', '/')}", f"{name}.{namespace}.svc"
        raise _NoAnswer(f'failed to call webhook: no endpoints available for service "{name}"')


class _NoAnswer(Exception):
    """A webhook cannot be asked."""


def _ready_at(pod: Json, target: Any) -> str:
    """Host and port; empty while the pod is not ready."""
    status = pod.get("status") or {}
    if not any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ()):
        return ""
    ports = [p for container in pod["spec"]["containers"] for p in container.get("ports") or ()]
    found = next((p["containerPort"] for p in ports if p.get("name") == target), target)
    return f"{status['podIP']}:{found}" if status.get("podIP") and isinstance(found, int) else ""


def _review(write: Write, request: Request, uid: str) -> Json:
    value = None if write.operation == "DELETE" else write.value
    asked = {"uid": uid, **review_of(write, request.user), "object": value, "oldObject": write.old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def _denied(name: str, status: Json) -> ApiFailure:
    said = str(status.get("message") or status.get("reason") or "")
    code = status.get("code")
    code = code if isinstance(code, int) and 400 <= code < 600 else 403
    why = f'admission webhook "{name}" denied the request' + (f": {said}" if said else " without explanation")
    return ApiFailure(code, str(status.get("reason") or "Forbidden"), why)


def _patched(name: str, value: Json, answer: Json) -> Json:
    try:
        if answer.get("patchType") != "JSONPatch":
            raise ValueError(f"patchType {answer.get('patchType')!r}")
        found = apply_json_patch(value, json.loads(base64.b64decode(answer["patch"], validate=True)))
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise ValueError("the patch leaves no object")
    except (ValueError, binascii.Error, RecursionError, ApiFailure) as problem:
        why = f'Internal error occurred: webhook "{name}" sent a bad patch: {problem}'
        raise ApiFailure(500, "InternalError", why) from problem
    return found


def _pem(bundle: str) -> str | None:
    return base64.b64decode(bundle).decode("ascii") if bundle else None


async def made(request: Request, webhooks: Webhooks, make: Any) -> Any:
    """A write, made again as often as somebody has to be asked about a part of it first."""
    if not webhooks.any():
        return make()
    admission = Admission(webhooks)
    request.admission = admission
    tries: dict[tuple[str, str, str], int] = {}
    while True:
        try:
            return make()
        except Waits as waits:
            about = waits.write.about
            tries[about] = tries.get(about, 0) + 1
            if tries[about] > TRIES:
                raise ApiFailure(409, "Conflict", f"{waits.write.kind.plural} {about[2]!r} changes faster than its webhooks "
                                 "answer; please apply your changes to the latest version and try again") from None  # fmt: skip
            await admission.ask(waits.write, request)
            await asyncio.sleep(0)
