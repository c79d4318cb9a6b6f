"""The webhooks, a row each: what they look at, and what decides."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pumice.ports.cluster import Resource
from pumice.wire.batch import CRON_JOBS
from pumice.wire.kinds import NAMESPACES, PODS
from pumice.wire.names import ADMISSION_SERVICE, CLAIMS, SHARE_CLAIMS
from pumice.wire.share_claims import RESOURCES
from pumice.wire.volcano import HYPER_NODES, JOB_FLOWS, JOBS, POD_GROUPS, QUEUES
from pumice_jobs.admission import claims, cronjobs, jobs, pods, queues, tenants
from pumice_jobs.admission.review import CREATE, DELETE, UPDATE, Answer, Request, Settings, View
from pumice_jobs.admission.tenants import RUN_THE_NODE

Decide = Callable[[Request, View, Settings], Answer]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of admission. ``default``: whether it is registered where nothing is said. ``changes``: what of a stored object,
    as the API server names the part, is looked at when it is changed."""

    path: str
    resource: Resource
    operations: tuple[str, ...]
    decide: Decide
    default: bool = True
    changes: str = ""

    @property
    def mutates(self) -> bool:
        return self.path.endswith("/mutate")

    @property
    def word(self) -> str:
        """``jobs`` of ``/jobs/mutate``."""
        return self.path.split("/")[1]


RULES: Final = (
    Rule("/jobs/mutate", JOBS, (CREATE,), jobs.mutate),
    Rule("/jobs/validate", JOBS, (CREATE, UPDATE), jobs.validate),
    Rule("/podgroups/mutate", POD_GROUPS, (CREATE,), queues.mutate_group, default=False),
    Rule("/podgroups/validate", POD_GROUPS, (CREATE,), queues.validate_group),
    Rule("/pods/mutate", PODS, (CREATE,), pods.mutate, default=False),
    Rule("/pods/validate", PODS, (CREATE,), pods.validate, default=False),
    Rule("/tenants/mutate", PODS, (CREATE,), tenants.mutate, default=False, changes="ephemeralcontainers"),
    Rule("/tenants/validate", PODS, (CREATE,), tenants.validate, default=False, changes="ephemeralcontainers"),
    Rule("/claims/mutate", PODS, (CREATE, UPDATE), claims.mutate, default=False),
    Rule("/jobclaims/mutate", JOBS, (CREATE, UPDATE), claims.mutate_job, default=False),
    Rule("/queues/mutate", QUEUES, (CREATE,), queues.mutate),
    Rule("/queues/validate", QUEUES, (CREATE, UPDATE, DELETE), queues.validate),
    Rule("/hypernodes/validate", HYPER_NODES, (CREATE, UPDATE), queues.validate_hypernode),
    Rule("/cronjobs/validate", CRON_JOBS, (CREATE, UPDATE), cronjobs.validate),
    Rule("/jobflows/validate", JOB_FLOWS, (CREATE, UPDATE), cronjobs.validate_flow, default=False),
)
BY_PATH: Final = {rule.path: rule for rule in RULES}
SHARES_TO_CLAIMS: Final = ("/claims/mutate", "/jobclaims/mutate")
"""The webhooks that ``--share-claims`` adds."""
DEFAULT_PATHS: Final = tuple(rule.path for rule in RULES if rule.default)


# -- The objects that tell an API server to ask us: one for each path -----------------------------------------------


API: Final = "admissionregistration.k8s.io/v1"
MUTATING: Final = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False)
VALIDATING: Final = Resource("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False)
ROLE: Final = "volcano-admission"
"""Our own, by our manifests. Where it is, it owns what we register: with it that goes, or nobody could make a Job any more."""
LABELS: Final = {"app": "volcano-admission"}
_ASKS_FOR_SHARES: Final = " || ".join(
    f"(has(object.spec.{part}) && object.spec.{part}.exists(c, has(c.resources) && has(c.resources.limits) && "
    f"c.resources.limits.exists(name, name in [{', '.join(repr(name) for name in sorted(RESOURCES))}])))"
    for part in ("containers", "initContainers"))
"""Nobody else's pods wait for us, and none fails while we are down."""
_NOT_STORED_AS_SHARES: Final = (
    f"request.operation == '{CREATE}' || (has(oldObject.metadata.annotations) && "
    f"'{SHARE_CLAIMS}' in oldObject.metadata.annotations)")
"""Scheduler and plugin write on pods that stay shares, whether we are there or not."""
PATIENCE: Final = 10
"""Seconds after which the API server gives an answer up, and with it the write."""


def object_name(rule: Rule) -> str:
    return f"{ADMISSION_SERVICE}-{rule.word}-{'mutate' if rule.mutates else 'validate'}"


def configuration(rule: Rule, authority: bytes, *, namespace: str, service: str = ADMISSION_SERVICE, url: str = "",
                  scheduler: str = "") -> tuple[Resource, dict[str, Any]]:  # fmt: skip
    """The object for one rule. ``url``: where we are reached, in place of a Service. Pods of other schedulers are never asked
    about: whoever is down keeps nobody else's pods from being made. Only what tenants say is asked of every pod."""
    requested = [(rule.resource.plural, rule.operations)]
    if rule.changes:
        requested.append((f"{rule.resource.plural}/{rule.changes}", (UPDATE,)))
    hook: dict[str, Any] = {
        "name": f"{'mutate' if rule.mutates else 'validate'}{rule.word.removesuffix('s')}.volcano.sh",
        "clientConfig": {"caBundle": base64.b64encode(authority).decode()},
        "rules": [{
            "apiGroups": [rule.resource.group], "apiVersions": [rule.resource.version], "resources": [resource],
            "operations": list(operations), "scope": "*",
        } for resource, operations in requested],
        "namespaceSelector": {"matchExpressions": _namespaces(rule, namespace)},
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": PATIENCE,
        "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    if url:
        hook["clientConfig"]["url"] = f"{url.rstrip('/')}{rule.path}"
    else:
        hook["clientConfig"]["service"] = {"name": service, "namespace": namespace, "path": rule.path, "port": 443}
    if rule.word == "pods":
        ours = [("pods-of-volcano", f"object.spec.schedulerName == '{scheduler}'")]
        if not rule.mutates:
            ours.append(("says-something", "has(object.metadata.annotations) && "
                         "object.metadata.annotations.exists(key, key.startsWith('volcano.sh/'))"))  # fmt: skip
        hook["matchConditions"] = [{"name": name, "expression": expression} for name, expression in ours]
    if rule.word == "claims":
        hook["matchConditions"] = [{"name": "asks-for-shares", "expression": _ASKS_FOR_SHARES},
                                   {"name": "made-or-written-as-claims", "expression": _NOT_STORED_AS_SHARES}]  # fmt: skip
    kind = "MutatingWebhookConfiguration" if rule.mutates else "ValidatingWebhookConfiguration"
    body = {"apiVersion": API, "kind": kind, "metadata": {"name": object_name(rule), "labels": LABELS}, "webhooks": [hook]}
    return (MUTATING if rule.mutates else VALIDATING), body


def _namespaces(rule: Rule, own: str) -> list[dict[str, Any]]:
    """Of whose pods it is asked. Of shares as claims it is where the namespace's label says so. Of what tenants say it is not in
    namespaces whose pods run the node, nor where Pod Security lets pods be privileged."""
    of_tenants = rule.word == "tenants"
    spared = {*(RUN_THE_NODE if of_tenants else ("kube-system",)), own}
    found: list[dict[str, Any]] = [{"key": CLAIMS, "operator": "In", "values": ["on"]}] if rule.path in SHARES_TO_CLAIMS else []
    found += [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted(spared)}]
    if of_tenants:
        found.append({"key": "pod-security.kubernetes.io/enforce", "operator": "NotIn", "values": ["privileged"]})
    return found


def owned_by(role: dict[str, Any]) -> list[dict[str, Any]]:
    """The references by which the garbage collector takes a registration away with the role."""
    meta = role["metadata"]
    return [{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": meta["name"], "uid": meta["uid"]}]


def needed(rules: Iterable[Rule]) -> frozenset[Resource]:
    """Return the kinds that have to be watched to decide by these rules, beside what stands in the requests."""
    asks = {"jobs": {QUEUES}, "cronjobs": {QUEUES}, "podgroups": {QUEUES, NAMESPACES}, "queues": {QUEUES},
            "tenants": {NAMESPACES}}  # fmt: skip
    return frozenset().union(*(asks.get(rule.word, set()) for rule in rules))
