"""The own node and its pods, written on: the performer of what a plugin's mind decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from pumice.apps.service.own_node import OwnNode
from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import (
    EndPod,
    Event,
    InstallFile,
    MakeDirectory,
    NodeEffect,
    PatchNode,
    PatchPod,
    PatchStatus,
)
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError
from pumice.wire.kinds import NODES, PODS
from pumice.wire.objects import Node, convert

log = logging.getLogger("pumice.node")

T = TypeVar("T")
ANSWER = 4.0
"""Seconds for which the API server's answer is waited for while the kubelet waits for ours: it admits no other pod meanwhile."""
TRIES, AGAIN = 5, Backoff(0.25, 2.0)
"""Of a write whose refusal may pass."""
_PASSING = {0, 408, 429, 500, 502, 503, 504}


class WrittenNode(OwnNode):
    """A node's view of itself, and its hand. Annotations of pods go through ``pods/status``: that door changes nothing of what a
    pod is (Kubernetes pkg/registry/core/pod/strategy.go, podStatusStrategy), so the plugin's account need not be let through the
    other one."""

    async def perform(self, effect: NodeEffect) -> None:
        """Do one thing. Raises ApiError when the API server refuses; Events are told on a best-effort basis."""
        match effect:
            case PatchPod():
                body: dict[str, Any] = {"metadata": {"uid": effect.uid, "annotations": dict(effect.annotations)}}
                await self._cluster.patch(PODS, effect.name, body, effect.namespace, subresource="status")
            case EndPod():
                notes = {effect.annotation: effect.message}
                body = {"metadata": {"uid": effect.uid, "annotations": notes}, "spec": {"activeDeadlineSeconds": 1}}
                await self._cluster.patch(PODS, effect.name, body, effect.namespace)
            case PatchNode():
                body = {"metadata": {"annotations": dict(effect.annotations)}}
                if effect.labels:
                    body["metadata"]["labels"] = dict(effect.labels)
                if effect.version:
                    body["metadata"]["resourceVersion"] = effect.version
                self._took(await self._cluster.patch(NODES, self.name, body))
            case PatchStatus():
                status = {"capacity": dict(effect.resources), "allocatable": dict(effect.resources)}
                body = {"metadata": {"annotations": dict(effect.annotations)}, "status": status}
                self._took(await self._cluster.patch(NODES, self.name, body, subresource="status"))
            case Event():
                await self.recorder.try_to_write(effect)
            case MakeDirectory() | InstallFile():
                raise TypeError("directories and files are made by apps.node")

    async def perform_soon(self, effect: NodeEffect, why: str, patience: float | None = None) -> bool:
        """Like ``perform``, for what may be tried again later: a refusal is logged and told by the result."""
        try:
            await answered(self.perform(effect), patience)
        except ApiError as error:
            log.warning("%s failed: %s", why, error)
            return False
        return True

    def _took(self, answer: dict[str, Any]) -> None:
        with suppress(msgspec.ValidationError):
            self.node = convert(Node, answer)


async def answered(call: Awaitable[T], seconds: float | None = ANSWER) -> T:
    """Return what the call answers, for which nobody waits longer. Raises ApiError."""
    try:
        async with asyncio.timeout(seconds):
            return await call
    except TimeoutError as error:
        raise ApiError(0, "Timeout", f"the API server has not answered for {seconds} s") from error


async def persist(act: Callable[[], Awaitable[None]], clock: Clock) -> ApiError | None:
    """Try again while the refusal may pass, after pauses that grow: for four seconds, unless the server asks for other ones, or
    does not answer at all. The last refusal, or None when it was done."""
    began = clock.monotonic()
    for attempt in range(TRIES):
        try:
            await answered(act())
            return None
        except ApiError as error:
            if error.code not in _PASSING or attempt == TRIES - 1 or clock.monotonic() - began >= 2 * ANSWER:
                return error
            await clock.sleep(min(error.retry_after or AGAIN.pause(attempt), AGAIN.longest))
    return None
