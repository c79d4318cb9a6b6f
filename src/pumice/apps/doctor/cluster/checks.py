"""The table of checks, and those that are of the API server itself: its version, policies, rights and webhooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from pumice.apps.doctor.cluster import clashes, configuration, nodes, shipped
from pumice.apps.doctor.cluster.facts import ClusterFacts, unread
from pumice.apps.doctor.cluster.kinds import kinds
from pumice.node.findings import Check, Finding, State
from pumice.wire.programs import Maker, Role

BAD, WARNING, UNKNOWN = State.BAD, State.WARNING, State.UNKNOWN
POLICIES_SINCE: Final = 30
"""The minor version of Kubernetes whose API server obeys ValidatingAdmissionPolicies (Kubernetes 1.30 release notes)."""
OPTIONAL: Final = ("volcano-tenant-void",)
TENANTS: Final = "/tenants/validate"
"""The admission server's path that says what the policies of tenants say."""
SHOWN: Final = 6


def _unless(what: str, there: Callable[[ClusterFacts], object]) -> Callable[[ClusterFacts], Finding | None]:
    """The finding where ``what`` is not there, so that nothing was looked at."""

    def lacking(facts: ClusterFacts) -> Finding | None:
        if there(facts) or facts.in_one_process:
            return None
        mend = "ask as somebody who may read it" if facts.unread else "install what is meant to be here"
        return Finding(UNKNOWN, f"no {what} {'was seen' if facts.unread else 'is there'}: nothing was looked at", mend)

    return lacking


def _kubernetes(facts: ClusterFacts) -> Iterator[Finding]:
    match = re.match(r"v?(\d+)\.(\d+)", facts.kubernetes)
    if match is None:
        yield Finding(UNKNOWN, f"the API server says that it is version {facts.kubernetes!r}")
    elif (int(match[1]), int(match[2])) < (1, POLICIES_SINCE):
        text = f"Kubernetes {facts.kubernetes} obeys no admission policies: anybody may write what the scheduler writes"
        yield Finding(WARNING, text, f"give the admission server --enabled-admission with {TENANTS}; 1.{POLICIES_SINCE} has them")


def _policies(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "validatingadmissionpolicies")
    if "validatingadmissionpolicies" in facts.unread:
        return
    asked = {str((hook.get("clientConfig") or {}).get("service", {}).get("path", "")) for config in facts.webhooks
             for hook in config.get("webhooks") or ()}  # fmt: skip
    missing: dict[str, list[str]] = {}
    for name, file in shipped.policies().items():
        if name not in facts.policies and name not in OPTIONAL and not (file.startswith("tenant") and TENANTS in asked):
            missing.setdefault(file, []).append(name)
    for file, names in sorted(missing.items()):
        yield Finding(WARNING, f"the policies {', '.join(names)} are not there: nobody keeps others from what {file} forbids",
                      f"kubectl create -f deploy/manifests/{file}")  # fmt: skip


def _rights(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.unreviewed:
        yield Finding(UNKNOWN, f"nobody says what the daemons may: {facts.unreviewed}",
                      "ask as somebody who may create subjectaccessreviews")  # fmt: skip
    for account, denied in sorted(facts.denied.items()):
        space, _, name = account.partition("/")
        files = sorted({daemon.file for daemon in shipped.daemons() if daemon.account == name}) or ["volcano.yml"]
        more = f" and {len(denied) - SHOWN} more" if len(denied) > SHOWN else ""
        yield Finding(BAD, f"the account {name} in {space} may not {', '.join(denied[:SHOWN])}{more}",
                      f"kubectl apply -f deploy/manifests/{files[0]} brings its roles and bindings")  # fmt: skip


def _webhooks(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
    for config in facts.webhooks:
        kind, name = config["kind"].lower(), config["metadata"]["name"]
        for hook in config.get("webhooks") or ():
            client = hook.get("clientConfig") or {}
            service = client.get("service")
            if not isinstance(service, dict):
                continue
            who = f"{config['kind']} {name}, {hook.get('name')}"
            if (why := facts.unbacked.get(f"{service.get('namespace')}/{service.get('name')}")) is not None:
                fails = hook.get("failurePolicy", "Fail") == "Fail"
                end = "what it is asked about is refused" if fails else "what it would say is left out"
                mend = f"bring its daemon back, or kubectl delete {kind} {name}"
                yield Finding(BAD if fails else WARNING, f"{who}: {why}; {end}", mend)
            elif not client.get("caBundle"):
                text = f"{who} names no authority (caBundle): the API server trusts it only by its own system's certificates"
                yield Finding(WARNING, text, "look at the log of the daemon that registers it")


DAEMON: Final = _unless("daemon of ours", lambda facts: any(one.program.maker is Maker.OURS for one in facts.workloads))
CHECKS: Final = (
    Check("kubernetes", "the API server is one that obeys policies", _kubernetes),
    Check("kinds", "Volcano's kinds are defined as our code knows them", kinds),
    Check("policies", "the API server keeps tenants and nodes to what is theirs", _policies),
    Check("schedulers", "one scheduler takes Volcano's pods", clashes.schedulers),
    Check("daemons", "one controller and one admission server work", clashes.daemons),
    Check("hami", "HAMi's scheduler and webhook keep out of the way", clashes.hami),
    Check("plugins", "one plugin serves each node's devices", clashes.plugins),
    Check("rights", "the daemons' accounts may what their code does", _rights, DAEMON),
    Check("scheduler-config", "the scheduler's configuration is understood", configuration.scheduler_config,
          _unless("configuration of a scheduler", lambda facts: facts.scheduler_conf is not None and facts.scheduler_conf.text)),
    Check("device-config", "the ConfigMaps of devices and nodes are understood", configuration.device_config,
          _unless("ConfigMap of devices", lambda facts: facts.device_configs)),
    Check("modes", "every way of sharing has its switch and its plugin", configuration.modes,
          _unless("scheduler with a configuration",
                  lambda facts: facts.scheduler_conf is not None and facts.scheduler_conf.text and facts.of(Role.SCHEDULER))),
    Check("webhooks", "a webhook that is asked has somebody who answers", _webhooks,
          _unless("webhook", lambda facts: facts.webhooks)),
    Check("runtime-classes", "the RuntimeClasses that plugins name are there", nodes.runtime_classes, DAEMON),
    Check("nodes", "every node's plugin is ready and tells of its devices", nodes.nodes,
          _unless("device plugin", lambda facts: facts.plugins)),
)  # fmt: skip
