"""The API server without sockets: a request comes in, a response or a stream goes out."""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable
from random import Random

from pumice.ports.clock import Clock, SystemClock
from pumice_lab.apiserver import bootstrap, discovery, usage
from pumice_lab.apiserver.auth import Tokens, acting_user
from pumice_lab.apiserver.backend import Backend, made
from pumice_lab.apiserver.conversion import Conversion
from pumice_lab.apiserver.crd.serve import CustomKinds
from pumice_lab.apiserver.errors import (
    ApiFailure,
    bad_request,
    method_not_allowed,
    no_such_path,
    not_stored,
    too_large,
    unauthorized,
)
from pumice_lab.apiserver.fairness import Seats, Turns
from pumice_lab.apiserver.health import Checks, Requests, health_checks, health_page, indicators
from pumice_lab.apiserver.http_types import ANONYMOUS, Request, Response, Target, failure, reply, target_of
from pumice_lab.apiserver.objects import Objects
from pumice_lab.apiserver.openapi import OpenApi
from pumice_lab.apiserver.quota_usage import Account
from pumice_lab.apiserver.registry import Kind, builtin
from pumice_lab.apiserver.rights import Act, Rights, act_of
from pumice_lab.apiserver.schema.shape import types
from pumice_lab.apiserver.storage import Expiry, Storage, TooLarge
from pumice_lab.apiserver.subresources import answer as subresource_answer
from pumice_lab.apiserver.tables.render import Tables
from pumice_lab.apiserver.verbs import read, write
from pumice_lab.apiserver.verbs.context import Call
from pumice_lab.apiserver.verbs.watch import watch
from pumice_lab.apiserver.virtual import answer as virtual_answer
from pumice_lab.apiserver.webhooks import Admission, Webhooks

log = logging.getLogger("pumice.cluster.apiserver.server")

VERSION = {
    "major": "1", "minor": "36", "gitVersion": "v1.36.0+pumice", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none (Python)", "compiler": "none", "platform": "linux/amd64",
}  # fmt: skip
LARGE = 32 * 1024
"""Bytes of a body, or of the object that a request is about, from which on requests wait for each other."""
_OPEN_TO_ALL = ("/healthz", "/livez", "/readyz", "/version")


class ApiServer:
    """Everything behind the socket. ``tokens`` is asked by the transport; ``handle`` trusts the user in the request.

    ``mounts_tokens``: pods get a token of their service account, which somebody makes in each namespace."""

    def __init__(self, storage: Storage, clock: Clock | None = None, rng: Random | None = None, *,
                 mounts_tokens: bool = False) -> None:
        self.storage, self.clock, self.rng = storage, clock or SystemClock(), rng or Random()
        self.rights = Rights(storage)
        self.tokens = Tokens(self.clock, storage.secret("service-account-key"), self._is_there)
        self.backend = Backend(storage, builtin(types()), self.clock, self.rng, mounts_tokens=mounts_tokens)
        self.objects = Objects(self.backend)
        self.expiry = Expiry(storage, self.clock)
        Account(storage)  # it counts by what storage tells it
        CustomKinds(self.backend)  # it serves them by the hooks that it leaves there
        self.tables = Tables(self.clock)
        self.openapi = OpenApi(self.backend.registry)
        self.webhooks = Webhooks(self.backend, self.rights)
        self.requests = Requests()
        self._ready = False
        self._bodies, self._turns = Seats(), Turns(rests=0.1)

    async def start(self) -> None:
        """Makes what every cluster has (namespaces, priority classes, roles). To be awaited once, before the first request."""
        bootstrap.ensure(self.objects)
        await self.storage.durable()
        self._ready = True

    def _is_there(self, plural: str, namespace: str, name: str, uid: str) -> bool:
        stored = self.storage.get(f"v1/{plural}", namespace, name)
        return stored is not None and stored.value()["metadata"].get("uid") == uid

    async def handle(self, request: Request) -> Response:
        """Answers one request. A write is on disk when this returns; a stream in the response is for the caller to run."""
        try:
            if request.user is ANONYMOUS and not request.path.startswith(_OPEN_TO_ALL):
                raise unauthorized()
            request.user = acting_user(request, self.rights)
            _check_timeout(request)
            self.expiry.sweep()
            request.conversion = Conversion()
            if self._is_large(request):
                await self._take_turn(request)
            if request.method == "GET":  # nobody may see what a crash or a full disk could still take back
                response = await made(self.backend, request, lambda: self._answer(request), self.storage.quiet)
            else:
                request.admission = Admission(self.webhooks) if self.webhooks.any() else None
                response = await made(self.backend, request, lambda: self._answer(request))
                await self.storage.durable()
        except ApiFailure as problem:
            response = failure(problem)
        except TooLarge as problem:
            response = failure(too_large(str(problem)))
        except sqlite3.Error as problem:
            response = failure(not_stored(problem))
        except RecursionError:
            response = failure(bad_request("the object is nested too deeply"))
        except Exception as problem:
            log.exception("%s %s", request.method, request.path)
            response = failure(ApiFailure(500, "InternalError", f"Internal error occurred: {problem!r}"))
        response.warnings = request.warnings
        self.requests.count(request, response)
        return response

    def _is_large(self, request: Request) -> bool:
        """Return whether it takes so long that others shall come between: by its body, or by the object that it is about."""
        if request.method == "GET":
            return False
        target = target_of(request.path)
        kind = self.backend.registry.find(target.group, target.version, target.plural) if target and target.name else None
        stored = self.storage.get(kind.storage, target.namespace, target.name) if target and kind else None
        return len(request.body) > LARGE or (stored is not None and len(stored.data) > LARGE)

    async def _take_turn(self, request: Request) -> None:
        """Reads a large body where it stops nobody, for those who may send it, and returns when it is the user's turn."""
        target = target_of(request.path)
        if target is None:
            return
        self.rights.require(request.user, act_of(request, target))
        if len(request.body) > LARGE:
            async with self._bodies.turn(request.user.name):
                await asyncio.to_thread(request.read_body)
        await self._turns.mine(request.user.name)

    def _answer(self, request: Request) -> Response:
        target = target_of(request.path)
        if target is None:
            if not request.path.startswith(_OPEN_TO_ALL):
                self.rights.require(request.user, Act(request.method.lower(), path=request.path))
            return self._plain(request)
        self.rights.require(request.user, act_of(request, target))
        kind = self.backend.registry.find(target.group, target.version, target.plural)
        if kind is None:
            raise no_such_path()
        _check_scope(request, target, kind)
        call = Call(request, target, kind, self.backend, self.objects, self.tables, self.tokens,
                    self.rights)
        if kind.group == usage.GROUP:
            return usage.answer(call)
        if kind.virtual:
            return virtual_answer(call)
        if target.subresource:
            return subresource_answer(call)
        return _verb(call)(call)

    def _checks(self, path: str) -> Checks:
        return health_checks(path, stores=self.storage.failed is None, ready=self._ready)

    def _plain(self, request: Request) -> Response:
        path = request.path
        if path in ("/healthz", "/livez", "/readyz") or path.startswith(("/healthz/", "/livez/", "/readyz/")):
            return health_page(request, self._checks(path))
        if path == "/metrics":
            body = self.requests.text(self.backend.registry, self.storage).encode()
            return Response(200, body, content_type="text/plain; version=0.0.4")
        if path == "/metrics/slis":
            return Response(200, indicators(self._checks("/readyz")).encode(), content_type="text/plain; version=0.0.4")
        if path in ("/version", "/version/"):  # Kubernetes' own clients ask with the slash
            return reply(VERSION)
        if path == "/":
            return reply(
                {
                    "paths": [
                        "/api",
                        "/apis",
                        "/healthz",
                        "/livez",
                        "/metrics",
                        "/openapi/v2",
                        "/openapi/v3",
                        "/readyz",
                        "/version",
                    ]
                }
            )
        response = self.openapi.answer(request) or discovery.answer(self.backend.registry, request)
        if response is None:
            raise no_such_path()
        return response


_DURATION = re.compile(r"[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)(([0-9.]+)(ns|us|µs|ms|s|m|h))*)")


def _check_timeout(request: Request) -> None:
    """A time limit in Go's form is read and need not be kept: no answer takes that long."""
    asked = request.param("timeout")
    if asked and not _DURATION.fullmatch(asked):
        raise bad_request(f'invalid timeout specified in the request URL: time: invalid duration "{asked[:60]}"')


def _check_scope(request: Request, target: Target, kind: Kind) -> None:
    """Raises NotFound where the path says otherwise than the kind whether it lies in a namespace: the right was asked there.

    All namespaces together are only read."""
    if not kind.namespaced:
        if target.namespace:
            raise no_such_path()
    elif not target.namespace:
        if target.name or "list" not in kind.verbs:
            raise no_such_path()
        if request.method != "GET":
            raise method_not_allowed(request.method)


def _verb(call: Call) -> Callable[[Call], Response]:
    """The verb of a request on a resource. Raises MethodNotAllowed."""
    request, target, kind = call.request, call.target, call.kind
    match request.method:
        case "GET" if target.watch or request.flag("watch"):
            verb, action = "watch", watch
        case "GET":
            verb, action = ("get", read.get) if target.name else ("list", read.list_)
        case "POST" if not target.name:
            verb, action = "create", write.create
        case "PUT" if target.name:
            verb, action = "update", write.update
        case "PATCH" if target.name:
            verb, action = "patch", write.patch
        case "DELETE":
            verb, action = ("delete", write.delete) if target.name else ("deletecollection", write.delete_collection)
        case _:
            raise method_not_allowed(request.method)
    if verb not in kind.verbs:
        raise method_not_allowed(verb)
    return action
