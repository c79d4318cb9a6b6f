"""Each daemon's role allows the calls that its code makes, and nothing that no code calls for.

The calls are read off the source: a method of the cluster's client, and the kind that is its first argument.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from kit.manifests import manifest

from pumice.apps.scheduler.informers import CLAIMS, LISTS, STORAGE, Informers
from pumice.ports.cluster import Resource
from pumice.wire import kinds, names, volcano
from pumice.wire.batch import CRON_JOBS, JOB_TEMPLATES
from pumice.wire.controller_conf import CONFIG_MAP
from pumice.wire.device_reports import GATHERED_NAMESPACE
from pumice.wire.without_effect import What, rows
from pumice_jobs.apps.controller.daemon import Controller
from pumice_jobs.apps.controller.discovery import Topology
from pumice_jobs.controllers import podgroup

Right = tuple[str, str, str]
"""API group, resource (with its subresource), verb."""

VERBS = {
    "get": {"get"}, "list": {"list"}, "watch": {"list", "watch"}, "create": {"create"}, "update": {"update"},
    "create_as": {"create"}, "patch": {"patch"}, "patch_as": {"patch"}, "delete": {"delete"},
    "delete_collection": {"deletecollection"},
}  # fmt: skip

CLIENTS = ("cluster", "_cluster", "kube")
"""The name of an API server client wherever one is held."""


def kinds_named_in(function: Callable[..., Any]) -> list[Resource]:
    """Every ``kinds.KIND`` and ``volcano.KIND`` that stands in a function."""
    found = re.findall(r"\b(kinds|volcano)\.([A-Z_]+)\b", inspect.getsource(function))
    named = [vars({"kinds": kinds, "volcano": volcano}[module])[name] for module, name in found]
    return [kind for kind in named if isinstance(kind, Resource)]


def status_of(kind: Resource) -> Resource:
    """Its status, which is written by a door of its own."""
    return replace(kind, plural=f"{kind.plural}/status")


MADE_BY_JOBS = (kinds.CONFIGMAPS, kinds.SERVICES, kinds.SECRETS, kinds.NETWORK_POLICIES, kinds.PERSISTENT_VOLUME_CLAIMS)
REMOVED_BY_JOBS = MADE_BY_JOBS[:-1]

TEMPLATES = ("get", "create", "patch")
"""What the controller does with templates of claims."""
HELD_IN_VARIABLES = {
    ("pumice.apps.service.watches", "watch", "volcano-scheduler"):
        kinds_named_in(Informers.handlers) + kinds_named_in(Informers.watch_configmap)
        + kinds_named_in(Informers.watch_reports)
        + [part for row in (*LISTS, *STORAGE, *CLAIMS) for part in row if isinstance(part, Resource)],
    ("pumice.apps.service.watches", "watch", "volcano-controllers"):
        kinds_named_in(Controller.watches) + kinds_named_in(Topology.watches) + list(podgroup.SCALED_KINDS)
        + [CRON_JOBS, JOB_TEMPLATES]
        + [row.resource for row in rows(What.KIND).values() if row.resource],
    ("pumice.apps.service.watches", "watch", "volcano-device-plugin"): [kinds.NODES, kinds.PODS],
    ("pumice.apps.service.watches", "watch", "volcano-device-plugin-mig"): [kinds.NODES, kinds.PODS],
    ("pumice.apps.service.watches", "watch", "hami-ascend"): [kinds.NODES, kinds.PODS],
    ("pumice.apps.service.watches", "watch", "ascend-mindcluster"): [kinds.NODES, kinds.PODS],
    ("pumice.apps.service.watches", "watch", "volcano-vgpu-monitor"): [kinds.NODES, kinds.PODS],
    ("pumice_jobs.apps.controller.bare_pods", "_owner_annotations"): list(podgroup.OWNER_KINDS.values()),
    ("pumice_jobs.apps.controller.bare_pods", "_reconcile_owner"): list(podgroup.SCALED_KINDS),
    ("pumice.effects.performer", "create", "volcano-controllers"): [volcano.JOBS, volcano.POD_GROUPS, volcano.HYPER_NODES],
    ("pumice.effects.performer", "patch", "volcano-controllers"): [
        kinds.PODS, volcano.POD_GROUPS, volcano.QUEUES, volcano.HYPER_NODES,
        *map(status_of, (volcano.QUEUES, CRON_JOBS, volcano.JOB_FLOWS))],
    ("pumice.effects.performer", "delete", "volcano-controllers"): [
        volcano.JOBS, volcano.POD_GROUPS, volcano.HYPER_NODES, *REMOVED_BY_JOBS],
    ("pumice_jobs.apps.controller.job_effects", "_ensure"): list(MADE_BY_JOBS),
    ("pumice_jobs.apps.controller.job_effects", "_is_there"): [kinds.PODS, volcano.POD_GROUPS],
    ("pumice_jobs.apps.controller.job_effects", "_check_owner"): list(MADE_BY_JOBS),
    ("pumice_jobs.apps.controller.job_effects", "_one"): [volcano.POD_GROUPS],
    ("pumice_jobs.apps.controller.job_effects", "_follow"): [kinds.CONFIGMAPS],
    ("pumice_jobs.apps.controller.job_effects", "_require"): [kinds.PERSISTENT_VOLUME_CLAIMS],
}  # fmt: skip
"""The kinds behind a call whose first argument is a variable: by module and function, and by account where daemons share it."""

DAEMONS = [
    ("volcano.yml", "volcano-scheduler", ["pumice.apps.scheduler.daemon"]),
    ("volcano.yml", "volcano-controllers", ["pumice_jobs.apps.controller.daemon", "pumice_jobs.apps.controller.daemon"]),
    ("volcano-vgpu-device-plugin.yml", "volcano-device-plugin", ["pumice.devices.nvidia_vgpu.plugin.daemon"]),
    ("volcano-vgpu-device-plugin.yml", "volcano-vgpu-monitor", ["pumice.apps.monitor.daemon"]),
    ("volcano-vgpu-device-plugin-mig.yml", "volcano-device-plugin-mig", ["pumice.devices.nvidia_vgpu.plugin.daemon"]),
    ("volcano-device-plugin.yml", "volcano-device-plugin", ["pumice.devices.nvidia_gpushare.plugin.daemon"]),
    ("pumice-dra-driver.yml", "pumice-dra-driver", ["pumice.devices.nvidia_vgpu.plugin.claim_daemon"]),
    ("pumice-dra-driver-npu.yml", "pumice-dra-driver-npu", ["pumice.devices.ascend_mindcluster.plugin.claim_daemon"]),
    ("ascend-device-plugin.yml", "hami-ascend", ["pumice.devices.ascend_hami.plugin.daemon"]),
    ("ascend-mindcluster-plugin.yml", "ascend-mindcluster", ["pumice.devices.ascend_mindcluster.plugin.daemon"]),
]
"""Manifest, service account, modules."""


def modules_of(daemons: list[str]) -> list[ModuleType]:
    """The daemons' modules, with all that they import from ``apps`` and ``effects``."""
    found: dict[str, ModuleType] = {}
    waiting = list(daemons)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = importlib.import_module(name)
            nodes = ast.walk(ast.parse(inspect.getsource(found[name])))
            imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
            waiting += [module for module in imported if re.search(r"\.(apps|effects|plugin)\.", module)]
    return list(found.values())


def rights_used(module: ModuleType, account: str) -> Iterator[Right]:
    for function in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(function, ast.AsyncFunctionDef | ast.FunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and is_of_the_client(call.func):
                    yield from rights_of(module, function.name, call, account)


def is_of_the_client(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr not in (*VERBS, "bind"):
        return False
    return ast.unparse(function.value).rpartition(".")[2] in CLIENTS


def rights_of(module: ModuleType, function: str, call: ast.Call, account: str) -> Iterator[Right]:
    assert isinstance(call.func, ast.Attribute)
    if call.func.attr == "bind":
        yield "", "pods/binding", "create"
        return
    named = [k.value for k in call.keywords if k.arg == "subresource" and isinstance(k.value, ast.Constant)]
    subresource = f"/{named[0].value!s}" if named else ""  # else the kinds say it (``status_of``)
    for kind in kinds_of(module, function, call.args[0], account):
        for verb in VERBS[call.func.attr]:
            yield kind.group, kind.plural + subresource, verb


def kinds_of(module: ModuleType, function: str, argument: ast.expr, account: str) -> list[Resource]:
    words = ast.unparse(argument).split(".")
    if not words[-1].isupper():
        called = module.__name__, function
        return HELD_IN_VARIABLES[called if called in HELD_IN_VARIABLES else (*called, account)]
    value: object = module
    for word in words:
        value = getattr(value, word)
    assert isinstance(value, Resource)
    return [value]


def rules_of(name: str, account: str) -> list[dict[str, list[str]]]:
    """All that the roles bound to the account allow, in whichever namespace."""
    found = manifest(name)
    bound = {
        (o["roleRef"]["kind"], o["roleRef"]["name"])
        for o in found
        if o["kind"].endswith("Binding") and account in [subject["name"] for subject in o["subjects"]]
    }
    return [rule for o in found if (o["kind"], o["metadata"]["name"]) in bound for rule in o["rules"]]


@pytest.mark.parametrize(("name", "account", "daemons"), DAEMONS, ids=[f"{d[0]}/{d[1]}" for d in DAEMONS])
def test_a_role_allows_what_the_daemons_code_calls_for_and_nothing_else(name, account, daemons):
    allowed = {
        (group, resource, verb)
        for rule in rules_of(name, account)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    used = {right for module in modules_of(daemons) for right in rights_used(module, account)}
    if account == "volcano-controllers":  # what the API server asks of whoever makes an owner wait for what it owns
        used |= {("batch.volcano.sh", "jobs/finalizers", "update"), ("batch.volcano.sh", "cronjobs/finalizers", "update"),
                 ("flow.volcano.sh", "jobflows/finalizers", "update")}  # fmt: skip
        used -= {("resource.k8s.io", "resourceclaimtemplates", verb) for verb in TEMPLATES}  # volcano-share-claims.yml
    if account == "volcano-scheduler":  # what Kubernetes 1.36 asks besides of whoever changes an allocation or a reservation
        used.add(("resource.k8s.io", "resourceclaims/binding", "update"))
        used.remove(("", "pods/eviction", "create"))  # of the action defrag, where it is on: volcano-defrag.yml
    if account in ("hami-ascend", "ascend-mindcluster"):  # the kubelet alone writes a node's NPUs into its status
        used -= {("", "nodes/status", "patch")}
    used -= {("", "events", "patch")}  # no daemon's recorder counts
    assert used - allowed == set(), "the API server would refuse these"
    assert allowed - used == set(), "nobody asks for these"


def test_configmaps_are_read_and_written_and_leases_written_by_name_only_but_for_those_of_jobs_and_reports():
    rules = [rule for name, account, _ in DAEMONS for rule in rules_of(name, account)]
    named = {(*rule["resources"], *sorted(rule["verbs"]), *rule.get("resourceNames", [])) for rule in rules
             if {"configmaps", "leases"} & set(rule["resources"])}  # fmt: skip
    assert named == {
        ("configmaps", "list", "watch", names.SCHEDULER_CONFIGMAP),
        ("configmaps", "list", "watch", names.DEVICE_CONFIGMAP),
        ("configmaps", "list", "watch", CONFIG_MAP),
        ("configmaps", "create", "delete", "get", "patch"),
        ("configmaps", "create", "patch"),
        ("configmaps", "patch", f"{names.SCHEDULER_CONFIGMAP}{names.LAST_GOOD}"),
        ("configmaps", "get", names.DEVICE_CONFIGMAP),
        ("configmaps", "create"),
        ("configmaps", "get", names.NPU_CONFIGMAP, names.DEVICE_CONFIGMAP),
        ("leases", "get", "update", names.SCHEDULER_NAME),
        ("leases", "get", "update", "vc-controller-manager"),
        ("leases", "create"),
    }


def test_pods_may_be_evicted_by_the_scheduler_where_its_action_is_on_and_nothing_else_with_that():
    assert rules_of("volcano-defrag.yml", "volcano-scheduler") == [
        {"apiGroups": [kinds.PODS.group], "resources": [f"{kinds.PODS.plural}/eviction"], "verbs": ["create"]}
    ]


def test_templates_of_claims_may_be_made_by_the_controller_where_shares_become_claims_and_nothing_else_with_that():
    resource = kinds.RESOURCE_CLAIM_TEMPLATES
    assert rules_of("volcano-share-claims.yml", "volcano-controllers") == [
        {"apiGroups": [resource.group], "resources": [resource.plural], "verbs": list(TEMPLATES)}
    ]


def test_what_clusterd_tells_may_be_followed_in_its_own_namespace_and_nothing_else():
    (binding,) = [o for o in manifest("volcano-mindcluster.yml") if o["kind"] == "RoleBinding"]
    assert binding["metadata"]["namespace"] == GATHERED_NAMESPACE
    assert rules_of("volcano-mindcluster.yml", "volcano-scheduler") == [
        {"apiGroups": [kinds.CONFIGMAPS.group], "resources": [kinds.CONFIGMAPS.plural], "verbs": ["list", "watch"]}
    ]
