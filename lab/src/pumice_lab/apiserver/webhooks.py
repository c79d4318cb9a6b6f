"""Admission webhooks (Kubernetes "Dynamic Admission Control"): who is asked about a write, and what becomes of it.

A write that somebody wants to be asked about is tried first and given up where they come (``asking``); then they are asked; then
it is made again with their answers at hand, provided that it still replaces what they were shown. Who mutates comes before the
object is found valid, who validates after that, and sees what is stored.
"""

from __future__ import annotations

import base64
import binascii
import copy
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import aiohttp

from pumice.cel.values import CelError
from pumice.wire.objects import is_ready
from pumice_lab.apiserver.backend import Backend, Waits
from pumice_lab.apiserver.errors import ApiFailure, forbidden
from pumice_lab.apiserver.expressions import Question, review_of
from pumice_lab.apiserver.http_types import Request, User
from pumice_lab.apiserver.match_rules import Write, concerns
from pumice_lab.apiserver.patch.json_patch import apply_json_patch
from pumice_lab.apiserver.rights import Rights
from pumice_lab.apiserver.strategies.expressions import GROUP

Json = dict[str, Any]
MUTATING, VALIDATING = f"{GROUP}/mutatingwebhookconfigurations", f"{GROUP}/validatingwebhookconfigurations"
PATIENCE = 10.0


@dataclass(slots=True)
class Admission:
    """Of one request: the answers so far."""

    webhooks: Webhooks
    answers: dict[tuple[str, ...], tuple[str, Json]] = field(default_factory=dict)

    def admit(self, write: Write, those: str) -> Json:
        """The object as ``those`` leave it: MUTATING, or later VALIDATING. Raises Unasked."""
        known = self.answers.get((those, *write.about))
        if known is not None and known[0] == write.replaced:
            return copy.deepcopy(known[1])
        if next(self.webhooks.concerned(write, those), None) is None:
            return write.value
        value, old = copy.deepcopy(write.value), copy.deepcopy(write.old)
        raise Unasked(self, Write(write.operation, write.kind, value, old, write.subresource, write.dry_run), those)


class Unasked(Waits):
    """Webhooks have to be asked about a write."""

    def __init__(self, admission: Admission, write: Write, those: str) -> None:
        super().__init__(write.operation)
        self.admission, self.write, self.those = admission, write, those

    @property
    def about(self) -> tuple[str, ...]:
        return self.those, *self.write.about

    async def settle(self, backend: Backend, request: Request) -> None:
        """Raises Forbidden, or whatever they answer, or InternalError where one that has to be asked gives no answer."""
        write, replaced = self.write, self.write.replaced
        self.admission.answers[self.about] = replaced, await self.admission.webhooks.decide(write, request, self.those)


@dataclass(slots=True)
class Webhooks:
    backend: Backend
    rights: Rights

    def any(self) -> bool:
        storage = self.backend.storage
        return any(next(iter(storage.objects(resource)), None) is not None for resource in (MUTATING, VALIDATING))

    def concerned(self, write: Write, those: str) -> Iterator[Json]:
        """In the order in which they are asked."""
        for stored in sorted(self.backend.storage.objects(those), key=lambda found: found.name):
            for hook in stored.value().get("webhooks") or ():
                if concerns(self.backend, hook, hook.get("rules") or (), write):
                    yield hook

    async def decide(self, write: Write, request: Request, those: str) -> Json:
        """The object as they leave it. Who wants to see what others made of it is asked once more ("Reinvocation policy")."""
        hooks = list(self.concerned(write, those))
        if those == VALIDATING:
            for hook in hooks:
                await self._requested(hook, write, request)
            return write.value
        seen: list[Json] = []  # those who want to, since the object last changed
        again: list[Json] = []
        for first in (True, False):
            for hook in hooks:
                if not first and hook not in again:
                    continue
                if await self._changes(hook, write, request):
                    again, seen = again + seen, []
                if hook.get("reinvocationPolicy") == "IfNeeded":
                    seen.append(hook)
        return write.value

    async def _changes(self, hook: Json, write: Write, request: Request) -> bool:
        """Return True if a webhook that mutates made another object of it."""
        answer = await self._requested(hook, write, request)
        before = write.value
        if answer.get("patch"):
            write.value = _patched(hook["name"], before, answer)
        return write.value != before

    async def _requested(self, hook: Json, write: Write, request: Request) -> Json:
        """The answer of one that lets the write in; empty where it is not asked."""
        if not self._meant(hook, write, request.user):
            return {}
        if write.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise ApiFailure(400, "BadRequest", f'admission webhook "{hook["name"]}" does not support dry run')
        try:
            patience = float(hook.get("timeoutSeconds") or PATIENCE)
            answer = await ask(self.backend, hook["clientConfig"], _review(write, request, self.backend.uid()), patience)
        except NoAnswer as problem:
            if hook.get("failurePolicy", "Fail") == "Ignore":
                return {}
            why = f'Internal error occurred: failed calling webhook "{hook["name"]}": {problem}'
            raise ApiFailure(500, "InternalError", why) from problem
        request.warnings.extend(str(text) for text in answer.get("warnings") or ())
        if answer.get("allowed") is not True:
            raise _denied(hook["name"], answer.get("status") or {})
        return answer

    def _meant(self, hook: Json, write: Write, user: User) -> bool:
        """Return True if its ``matchConditions`` hold. Raises Forbidden where that cannot be told."""
        try:
            return Question(self.backend, self.rights, user, write).holds(hook.get("matchConditions"))
        except CelError as problem:
            if hook.get("failurePolicy", "Fail") == "Ignore":
                return False
            kind, name = write.kind, write.metadata.get("name", "")
            raise forbidden(kind.group, kind.plural, name, str(problem)) from None


def _review(write: Write, request: Request, uid: str) -> Json:
    value = None if write.operation == "DELETE" else write.value
    asked = {"uid": uid, **review_of(write, request.user), "object": value, "oldObject": write.old}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def _denied(name: str, status: Json) -> ApiFailure:
    said = str(status.get("message") or status.get("reason") or "")
    code = status.get("code")
    code = code if isinstance(code, int) and 400 <= code < 600 else 400
    why = f'admission webhook "{name}" denied the request' + (f": {said}" if said else " without explanation")
    return ApiFailure(code, str(status.get("reason") or ""), why)


def _patched(name: str, value: Json, answer: Json) -> Json:
    try:
        if answer.get("patchType") != "JSONPatch":
            raise ValueError(f"patchType {answer.get('patchType')!r}")
        operations = json.loads(base64.b64decode(answer["patch"], validate=True))
        if operations is None:  # as Go writes an empty list: Volcano's webhooks, where an object lacks nothing
            return value
        found = apply_json_patch(value, operations)
        if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
            raise ValueError("the patch leaves no object")
    except (ValueError, binascii.Error, RecursionError, ApiFailure) as problem:
        why = f'Internal error occurred: webhook "{name}" sent a bad patch: {problem}'
        raise ApiFailure(500, "InternalError", why) from problem
    return found


# -- How webhooks are called: where they are, and what is read of their answers --------------------------------------

LARGEST = 3 << 20
"""Bytes of an answer that are read."""


class NoAnswer(Exception):
    """A webhook cannot be asked."""


async def ask(backend: Backend, client: Json, review: Json, patience: float, largest: int = LARGEST) -> Json:
    """Return the answer of a webhook to a review, within so many seconds and bytes. Raises NoAnswer."""
    url, host = _place(backend, client)
    try:
        tls = _trusting(_pem(client.get("caBundle", "")))
        timeout = aiohttp.ClientTimeout(total=patience)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.post(
            url, json=review, ssl=tls, server_hostname=host or None
        ) as response:  # fmt: skip
            body = await _read(response, largest)
            if response.status != 200:
                raise NoAnswer(f'failed to call webhook: the server answered {response.status} for "{url}"')
        answer = json.loads(body)["response"]
        if answer["uid"] != review["request"]["uid"]:
            raise NoAnswer(f'expected response.uid="{review["request"]["uid"]}"')
    except TimeoutError as problem:
        raise NoAnswer(f'failed to call webhook: Post "{url}": context deadline exceeded') from problem
    except (aiohttp.ClientError, OSError, ssl.SSLError) as problem:
        raise NoAnswer(f'failed to call webhook: Post "{url}": {problem}') from problem
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise NoAnswer(f"received invalid webhook response: {problem!r}") from problem
    if not isinstance(answer, dict):
        raise NoAnswer("received invalid webhook response: no object")
    return answer


@lru_cache(64)
def _trusting(certificates: str | None) -> ssl.SSLContext:
    """Kept: to read the certificates of the system, which count where none are named, takes 30 ms in which nobody is answered."""
    return ssl.create_default_context(cadata=certificates)


async def _read(response: aiohttp.ClientResponse, largest: int) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > largest:
            raise NoAnswer(f"received invalid webhook response: more than {largest} bytes")
    return bytes(body)


def _place(backend: Backend, client: Json) -> tuple[str, str]:
    """(URL, name on the certificate where it is another one than the URL's)."""
    if client.get("url"):
        return client["url"], ""
    asked = client.get("service") or {}
    namespace, name, port = asked.get("namespace", ""), asked.get("name", ""), asked.get("port", 443)
    service = backend.read("v1/services", namespace, name)
    if service is None:
        raise NoAnswer(f'failed to call webhook: service "{name}" not found')
    target = next((p.get("targetPort", port) for p in service["spec"].get("ports") or () if p.get("port") == port), port)
    selector = service["spec"].get("selector") or {}
    for stored in backend.storage.objects("v1/pods", namespace):
        pod = stored.value()
        labels = pod["metadata"].get("labels") or {}
        if selector and selector.items() <= labels.items() and (address := _ready_at(pod, target)):
            return f"https://{address}{asked.get('path', '/')}", f"{name}.{namespace}.svc"
    raise NoAnswer(f'failed to call webhook: no endpoints available for service "{name}"')


def _ready_at(pod: Json, target: Any) -> str:
    """Host and port; empty while the pod is not ready."""
    if not is_ready(pod):
        return ""
    ports = [p for container in pod["spec"]["containers"] for p in container.get("ports") or ()]
    found = next((p["containerPort"] for p in ports if p.get("name") == target), target)
    address = pod["status"].get("podIP")
    return f"{address}:{found}" if address and isinstance(found, int) else ""


def _pem(bundle: str) -> str | None:
    return base64.b64decode(bundle).decode("ascii") if bundle else None
