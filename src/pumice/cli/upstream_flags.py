"""Flags as Volcano's own manifests write them, for the commands that take the place of its programs.

Go programs write ``--enable-healthz=true``; ours know ``--enable-healthz`` and ``--no-enable-healthz`` only. Flags of upstream
that have no meaning here are accepted and named once, so that a Deployment can be taken over unchanged. Those of them whose
promise is not kept are warned of with the consequence (wire/without_effect.py), and refused under ``--strict``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from pumice.cli.flags import Command
from pumice.model.errors import BadInput, nearest

TRUE = frozenset({"true", "True", "TRUE", "t", "T", "1"})
FALSE = frozenset({"false", "False", "FALSE", "f", "F", "0"})

WITHOUT_EFFECT = frozenset({
    "master", "resync-period", "minimum-feasible-nodes", "minimum-percentage-nodes-to-find", "percentage-nodes-to-find",
    "gate-removal-worker-num", "csi-storage", "ignored-provisioners", "resource-sync-timeout", "cache-dumper",
    "cache-dump-dir", "plugins-dir", "enable-pprof", "priority-class", "lock-object-namespace",
    "leader-elect-resource-lock", "ca-cert-file", "tls-cert-file", "tls-private-key-file", "feature-gates",
    "log-flush-frequency", "alsologtostderr", "stderrthreshold", "vmodule", "log-dir", "log-file", "log_dir", "log_file",
    "log-file-max-size", "skip-headers", "skip-log-headers", "add-dir-header", "one-output", "kube-api-qps",
    "kube-api-burst", "node-worker-threads", "logtostderr", "enable-healthz", "enable-metrics",
    "worker-threads-for-podgroup", "worker-threads-for-queue", "worker-threads-for-gc",
    "max-requeue-num", "detection-period-of-dependson-task", "controllers",
})  # fmt: skip
_SWITCHES = frozenset({
    "csi-storage", "cache-dumper", "enable-pprof", "priority-class", "alsologtostderr", "logtostderr", "skip-headers",
    "skip-log-headers", "add-dir-header", "one-output", "enable-healthz", "enable-metrics",
})  # fmt: skip
"""Those of them that take no separate value."""


def as_upstream_writes(command: Command, words: list[str]) -> list[str]:
    """For a command that also reads Go's way of writing flags."""
    known = {name for one in command.parameters for name in (*one.names, *one.off)}
    switches = {name: (*one.off, "")[0] for one in command.parameters if one.is_switch for name in one.names}
    rewritten, ignored = rewrite(words, known, switches)
    warnings = [text for flag, value in ignored for text in unkept(flag.lstrip("-"), value)]
    if warnings and "--strict" in rewritten:
        raise BadInput(f"{warnings[0]} (strict)")
    for text in warnings:
        print(text, file=sys.stderr)
    if ignored:
        print(f"without effect here: {', '.join(flag for flag, _ in ignored)}", file=sys.stderr)
    return rewritten


def unkept(flag: str, value: str) -> list[str]:
    """The effects of flags that were left out, one sentence each."""
    from pumice.wire.without_effect import What, rows

    if flag != "feature-gates":
        row = rows(What.FLAG).get(flag)
        return [row.text] if row is not None and row.asks(value) else []
    found = []
    for pair in filter(None, value.split(",")):
        name, _, wanted = pair.partition("=")
        gate = rows(What.GATE).get(name.strip())
        if gate is None:
            found.append(f"feature gate {name.strip()!r} is not known{nearest(name, rows(What.GATE))}")
        elif gate.asks(wanted.strip()):
            found.append(gate.text)
    return found


def rewrite(
    args: Iterable[str], known: set[str], switches: Mapping[str, str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """(arguments for the parser, flags that were left out with their values). ``switches``: how each is switched off; empty
    where leaving it out does."""
    kept: list[str] = []
    ignored: list[tuple[str, str]] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        flag, equals, value = word.partition("=")
        if flag.startswith("--") and flag not in known and flag[2:] in WITHOUT_EFFECT:
            if not equals and flag[2:] in _SWITCHES:
                value = "true"
            elif not equals and rest and not rest[0].startswith("-"):
                value = rest.pop(0)
            ignored.append((flag, value))
        elif equals and flag in switches and value in TRUE:
            kept.append(flag)
        elif equals and flag in switches and value in FALSE:
            kept += [switches[flag]] if switches[flag] else []
        elif flag == "-v" and equals:
            kept += ["-v", value]
        else:
            kept.append(word)
    return kept, ignored
