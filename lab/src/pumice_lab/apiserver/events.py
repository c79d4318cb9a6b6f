"""Events have two faces, core/v1 and events.k8s.io/v1, over one storage (core/v1)."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

# events.k8s.io/v1 field -> core/v1 field
_RENAMED = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_BACK = {core: new for new, core in _RENAMED.items()}


def to_core(value: Json) -> Json:
    return {_RENAMED.get(key, key): part for key, part in value.items()} | {"apiVersion": "v1"}


def to_events_v1(value: Json) -> Json:
    return {_BACK.get(key, key): part for key, part in value.items()} | {"apiVersion": "events.k8s.io/v1"}
