"""Why a pod waits, as one value: its condition, its PodGroup's, events, metrics and ``pumice explain`` are rendered from it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """Why a pod waits, in one word: the label ``reason`` of ``pumice_pending_pods``."""

    NEW = "new"
    GATED = "gated"
    QUEUE = "queue"
    GANG = "gang"
    RELEASING = "releasing"
    UNSCHEDULABLE = "unschedulable"


class Reason(Struct, frozen=True, gc=False):
    """Shared by all pods of which the same is to be said."""

    cause: Cause
    text: str


def by_nodes(text: str) -> Reason:
    """No node may or can take it."""
    return Reason(Cause.UNSCHEDULABLE, text)


def by_queue(text: str) -> Reason:
    """Its queue, or what has to be asked before its pods are tried, keeps it back."""
    return Reason(Cause.QUEUE, text)


def by_gang(text: str) -> Reason:
    """Its gang lacks members, or could not be bound."""
    return Reason(Cause.GANG, text)
