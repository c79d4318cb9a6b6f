"""Findings in files of scheduler configuration, device ConfigMaps, pods and claims, each with its line. Text in, values out.

What a file is, is told by what is in it: an ``actions``/``tiers`` document, an ``nvidia``/``vnpus`` document, a ConfigMap
that holds one of them, or anything with a pod in it. Other documents are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pumice.devices.lint.claims import lint_claims
from pumice.devices.lint.devices import EMPTY_DEVICES, is_empty, lint_devices
from pumice.devices.lint.finding import Finding
from pumice.devices.lint.pods import lint_pods
from pumice.devices.lint.scheduler import lint_scheduler
from pumice.devices.protocol import DeviceSharing
from pumice.devices.registry import every_device_type
from pumice.model.errors import BadInput
from pumice.wire import names
from pumice.wire.device_config import DeviceConfig
from pumice.wire.device_config_text import SECTIONS
from pumice.wire.document import Document, has_key, read_documents

__all__ = ["EMPTY_DEVICES", "Finding", "is_empty", "lint_files"]


def lint_files(texts: dict[str, str], device_types: Sequence[DeviceSharing] = ()) -> list[Finding]:
    """All findings, file by file, by line. A device ConfigMap among the files gives pods their resource names. ``device_types``:
    those whose pods these are, where not all that there are."""
    findings: list[Finding] = []
    documents: list[tuple[str, str, Document]] = []
    for file, text in texts.items():
        try:
            found = [(file, text, document) for document in read_documents(text)]
        except BadInput as error:
            findings.append(Finding.from_error(file, error))
            continue
        documents += found
        if not any(document.value for _, _, document in found):
            why = "there is nothing in it; whoever writes it into a ConfigMap takes away what was there"
            findings.append(Finding(file, 1, why, error=True))
    parts = [part for document in documents for part in _parts(*document)]
    findings += [finding for file, _, document in documents for finding in _keys(file, document)]
    findings += lint_claims((file, document) for file, _, document in documents)
    config = DeviceConfig()
    for kind, file, text, line, _ in parts:
        if kind == "devices":
            said, parsed = lint_devices(file, text, line)
            findings += said
            config = parsed or config
    device_types = device_types or every_device_type(config)
    for kind, file, text, line, lined in parts:
        if kind == "scheduler":
            findings += lint_scheduler(file, text, line)
        elif kind == "pods":
            findings += lint_pods(file, lined, device_types)
    order = {file: number for number, file in enumerate(texts)}
    return sorted(dict.fromkeys(findings), key=lambda finding: (order[finding.file], finding.line, finding.text))


def _parts(file: str, text: str, lined: Document) -> Iterator[tuple[str, str, str, int, Document]]:
    """(what, file, text of it, its first line, the document)"""
    value = lined.value
    if not isinstance(value, dict):
        return
    if "tiers" in value or ("actions" in value and "kind" not in value):
        yield "scheduler", file, _own_text(text, lined), lined.line(), lined
    elif not value.keys().isdisjoint(SECTIONS) and "kind" not in value:
        yield "devices", file, _own_text(text, lined), lined.line(), lined
    elif value.get("kind") == "ConfigMap" and isinstance(value.get("data"), dict):
        for key, inner in value["data"].items():
            if isinstance(inner, str):
                kind = _kind_of(key, inner)
                if kind:
                    yield kind, file, inner, lined.line("data", key) + 1, lined
    else:
        yield "pods", file, "", 1, lined


def _kind_of(key: str, text: str) -> str:
    if key == names.DEVICE_CONFIG_KEY:
        return "devices"
    if key == names.SCHEDULER_CONF_KEY or has_key(text, "tiers"):
        return "scheduler"
    if has_key(text, *SECTIONS):
        return "devices"
    return ""


def _keys(file: str, lined: Document) -> Iterator[Finding]:
    """Keys of a ConfigMap by which nobody finds what is in it."""
    value = lined.value
    data = value.get("data") if isinstance(value, dict) and value.get("kind") == "ConfigMap" else None
    for key, inner in data.items() if isinstance(data, dict) else ():
        line = lined.line("data", key)
        if key in (names.SCHEDULER_CONF_KEY, names.DEVICE_CONFIG_KEY) and not isinstance(inner, str):
            yield Finding(file, line, f"{key} must be one text, not YAML of its own; write {key}: | with the bar", True)
        elif isinstance(inner, str):
            kind = _kind_of(key, inner)
            if kind == "devices" and key != names.DEVICE_CONFIG_KEY:
                yield Finding(file, line, f"nobody reads the key {key!r}; did you mean {names.DEVICE_CONFIG_KEY!r}?")
            elif kind == "scheduler" and not key.endswith(".conf"):
                yield Finding(file, line, f"nobody reads the key {key!r}; did you mean {names.SCHEDULER_CONF_KEY!r}?")


def _own_text(text: str, lined: Document) -> str:
    """The document's own lines, from its first key to the next separator."""
    lines = text.splitlines()[lined.line() - 1 :]
    for number, line in enumerate(lines):
        if number and line.startswith("---"):
            return "\n".join(lines[:number])
    return "\n".join(lines)

