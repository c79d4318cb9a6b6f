"""Findings in ``volcano-scheduler.conf``: what would be refused, and what would silently do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.devices.lint.finding import Finding
from pumice.devices.registry import ALIASES, POLICY, SWITCHES, settings_from
from pumice.devices.settings import Settings
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.wire.document import Document, read_document
from pumice.wire.scheduler_conf import read_scheduler_conf

LEGACY = tuple(word for word in ALIASES if word.startswith("predicate."))


def lint_scheduler(file: str, text: str, first_line: int) -> list[Finding]:
    """``text`` begins at ``first_line`` of the file."""
    padded = "\n" * (first_line - 1) + text
    try:
        conf, errors = read_scheduler_conf(padded, source=file)
        lined = read_document(text, first_line=first_line)
    except BadInput as error:
        return [Finding.from_error(file, error, first_line)]
    findings = [Finding.from_text(file, text, error=True, line=first_line) for text in errors]
    findings += [Finding.from_text(file, warning, line=first_line) for warning in conf.warnings]
    if not conf.tiers:
        findings.append(Finding(file, lined.line("tiers"), "without tiers no plugin runs: nothing filters or scores"))
    findings += [Finding(file, line, f"key {path[-1]!r} is given twice; the last one counts") for path, line in lined.duplicates]
    for plugin, path in _plugins(lined):
        arguments = plugin.get("arguments")
        if plugin.get("name") == "deviceshare":
            arguments = arguments if isinstance(arguments, dict) else {}
            legacy = _legacy(lined)
            findings += _deviceshare(file, lined, (*path, "arguments"), {**legacy, **arguments})
    return findings


def _plugins(lined: Document) -> Iterator[tuple[dict[str, Any], tuple[str | int, ...]]]:
    tiers = lined.value.get("tiers") if isinstance(lined.value, dict) else None
    for t, tier in enumerate(tiers if isinstance(tiers, list) else ()):
        plugins = tier.get("plugins") if isinstance(tier, dict) else None
        for p, plugin in enumerate(plugins if isinstance(plugins, list) else ()):
            if isinstance(plugin, dict):
                yield plugin, ("tiers", t, "plugins", p)


def _legacy(lined: Document) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for plugin, _ in _plugins(lined):
        arguments = plugin.get("arguments")
        if plugin.get("name") == "predicates" and isinstance(arguments, dict):
            found |= {key: value for key, value in arguments.items() if key in LEGACY}
    return found


def _deviceshare(file: str, lined: Document, path: tuple[str | int, ...], arguments: Mapping[str, Any]) -> list[Finding]:
    def at(text: str, key: str, *, error: bool = False) -> Finding:
        return Finding(file, lined.line(*path, key), text, error)

    settings = settings_from(arguments)
    if isinstance(settings, Refusal):
        return [at(settings.text, settings.field, error=True)]
    findings = []
    for warning in settings.warnings:
        if warning.startswith("unknown argument") and not warning.startswith("unknown argument pumice."):
            continue  # the parser of the file says so already; what is ours it lets pass
        named = (key for key in arguments if key in warning)
        key = min(named, key=lambda key: (warning.index(key), -len(key)), default="")  # the one that it begins with
        findings.append(at(warning, key))
    findings += [at(text, key) for key, text in _without_effect(settings, arguments)]
    return findings


def _without_effect(settings: Settings, arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, sentence) for what is written and changes nothing."""
    wanted = [switch for switch in SWITCHES if switch.key in settings.on]
    if not wanted:
        yield "", f"deviceshare shares nothing: none of {', '.join(switch.key for switch in SWITCHES)} is true"
        return
    if any(POLICY in switch.arguments for switch in wanted):
        if settings.weight == 0 and settings.policy:
            yield "deviceshare.ScheduleWeight", (
                f"with weight 0 the policy {settings.policy} orders the cards of a node but not the nodes; "
                "leave the weight out to let it order both"
            )
        if (settings.weight or 0) < 0:
            yield "deviceshare.ScheduleWeight", f"weight {settings.weight} counts as 0"
        if settings.weight and not settings.policy:
            yield "deviceshare.ScheduleWeight", (
                "a weight without deviceshare.SchedulePolicy counts for MIG slots and for pods with a policy of their own only"
            )
    read = {key for switch in wanted for key in switch.arguments}
    for switch in SWITCHES if all(switch.complete for switch in wanted) else ():
        for key in switch.arguments:
            if key in arguments and key not in read:
                yield key, f"{key} does nothing without {switch.key}: true"
