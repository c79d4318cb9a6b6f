"""Printer columns of the built-in kinds, as kubectl users know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.wire.kubectl_columns import duration_since, human, pod_cells
from pumice.wire.times import seconds
from pumice_lab.apiserver.strategies.base import at
from pumice_lab.apiserver.tables import settings
from pumice_lab.apiserver.tables.printer import (
    AGE,
    CREATED,
    Column,
    Printer,
    age_of,
    joined,
    labels_text,
    name_of,
    printer,
    row,
    selector_text,
)

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


Json = dict[str, Any]


def _containers(value: Json, path: str = "spec.template.spec") -> tuple[str, str]:
    items = at(value, path + ".containers") or []
    return ",".join(c.get("name", "") for c in items), ",".join(c.get("image", "") for c in items)


def _node(value: Json, now: float) -> list[Any]:
    conditions = {c.get("type"): c.get("status") for c in at(value, "status.conditions") or []}
    ready = {"True": "Ready", "False": "NotReady"}.get(conditions.get("Ready", ""), "Unknown")
    if at(value, "spec.unschedulable"):
        ready += ",SchedulingDisabled"
    role = "node-role.kubernetes.io/"
    labels = value["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(role) for key in labels if key.startswith(role))
    if labels.get("kubernetes.io/role"):
        roles.append(labels["kubernetes.io/role"])
    addresses = {a.get("type"): a.get("address") for a in at(value, "status.addresses") or []}
    info = at(value, "status.nodeInfo") or {}
    return [name_of(value), ready, joined(roles), age_of(value, now), info.get("kubeletVersion", ""),
            addresses.get("InternalIP", "<none>"), addresses.get("ExternalIP", "<none>"), info.get("osImage") or "<unknown>",
            info.get("kernelVersion") or "<unknown>", info.get("containerRuntimeVersion") or "<unknown>"]  # fmt: skip


def _deployment(value: Json, now: float) -> list[Any]:
    status, spec = value.get("status") or {}, value.get("spec") or {}
    names, images = _containers(value)
    return [name_of(value), f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}", status.get("updatedReplicas", 0),
            status.get("availableReplicas", 0), age_of(value, now), names, images,
            selector_text(spec.get("selector"))]  # fmt: skip


def _replica_set(value: Json, now: float) -> list[Any]:
    status, spec = value.get("status") or {}, value.get("spec") or {}
    names, images = _containers(value)
    selector = spec.get("selector")
    text = selector_text(selector) if value.get("kind") == "ReplicaSet" else labels_text(selector)
    return [name_of(value), spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0),
            age_of(value, now), names, images, text]  # fmt: skip


def _stateful_set(value: Json, now: float) -> list[Any]:
    names, images = _containers(value)
    ready = f"{at(value, 'status.readyReplicas', 0)}/{at(value, 'spec.replicas', 0)}"
    return [name_of(value), ready, age_of(value, now), names, images]


def _daemon_set(value: Json, now: float) -> list[Any]:
    status, (names, images) = value.get("status") or {}, _containers(value)
    nodes = labels_text(at(value, "spec.template.spec.nodeSelector"))
    return [name_of(value), status.get("desiredNumberScheduled", 0), status.get("currentNumberScheduled", 0),
            status.get("numberReady", 0), status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0),
            nodes, age_of(value, now), names, images, selector_text(at(value, "spec.selector"))]  # fmt: skip


def _job(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    conditions = {c.get("type") for c in status.get("conditions") or [] if c.get("status") == "True"}
    said = ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet")
    state = next(
        (c for c in said if c in conditions), "Terminating" if value["metadata"].get("deletionTimestamp") else "Running"
    )
    wanted = spec.get("completions")
    parallel = spec.get("parallelism") or 0
    goal = str(wanted) if wanted is not None else (f"1 of {parallel}" if parallel > 1 else "1")
    took = ""
    if status.get("startTime"):
        took = human((seconds(status.get("completionTime")) or now) - seconds(status["startTime"]))
    names, images = _containers(value)
    return [name_of(value), state, f"{status.get('succeeded', 0)}/{goal}", took, age_of(value, now), names, images,
            selector_text(spec.get("selector"))]  # fmt: skip


def _cron_job(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    last = duration_since(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else "<none>"
    names, images = _containers(value, "spec.jobTemplate.spec.template.spec")
    return [name_of(value), spec.get("schedule", ""), spec.get("timeZone") or "<none>", str(bool(spec.get("suspend"))),
            len(status.get("active") or []), last, age_of(value, now), names, images,
            selector_text(at(value, "spec.jobTemplate.spec.selector"))]  # fmt: skip


def _service(value: Json, now: float) -> list[Any]:
    spec = value.get("spec") or {}
    ports = [f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
             for p in spec.get("ports") or []]  # fmt: skip
    external = spec.get("externalName") if spec.get("type") == "ExternalName" else joined(spec.get("externalIPs") or [])
    return [name_of(value), spec.get("type", ""), spec.get("clusterIP") or "<none>", external, joined(ports), age_of(value, now),
            labels_text(spec.get("selector"))]  # fmt: skip


def _event(value: Json, now: float) -> list[Any]:
    first = value.get("firstTimestamp") or value.get("eventTime")
    series = value.get("series") or {}
    last = series.get("lastObservedTime") or value.get("lastTimestamp") or first
    count = series.get("count") or value.get("count") or 1
    involved = value.get("involvedObject") or {}
    source = value.get("source") or {}
    origin = source.get("component") or value.get("reportingComponent") or ""
    host = source.get("host") or value.get("reportingInstance") or ""
    what = f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"
    return [duration_since(last, now), value.get("type", ""), value.get("reason", ""), what, involved.get("fieldPath", ""),
            f"{origin}, {host}" if host and host != origin else origin, (value.get("message") or "").strip(),
            duration_since(first, now), count, name_of(value)]  # fmt: skip


def _claim(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    phase = "Terminating" if value["metadata"].get("deletionTimestamp") else status.get("phase", "")
    size = at(status, "capacity.storage", "") if spec.get("volumeName") else ""
    return [name_of(value), phase, spec.get("volumeName", ""), size, _modes(status.get("accessModes") or []),
            spec.get("storageClassName", ""), spec.get("volumeAttributesClassName") or "<unset>", age_of(value, now),
            spec.get("volumeMode", "")]  # fmt: skip


def _volume(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    claim = spec.get("claimRef") or {}
    name = f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""
    return [name_of(value), at(spec, "capacity.storage", ""), _modes(spec.get("accessModes") or []),
            spec.get("persistentVolumeReclaimPolicy", ""), status.get("phase", ""), name, spec.get("storageClassName", ""),
            spec.get("volumeAttributesClassName") or "<unset>", status.get("reason", ""), age_of(value, now),
            spec.get("volumeMode", "")]  # fmt: skip


def _modes(modes: list[str]) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in modes)


def _storage_class(value: Json, now: float) -> list[Any]:
    default = at(value, "metadata.annotations", {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return [name_of(value) + (" (default)" if default else ""), value.get("provisioner", ""),
            value.get("reclaimPolicy", "Delete"), value.get("volumeBindingMode", "Immediate"),
            str(bool(value.get("allowVolumeExpansion"))).lower(), age_of(value, now)]  # fmt: skip


def _binding(value: Json, now: float) -> list[Any]:
    role, subjects = value.get("roleRef") or {}, value.get("subjects") or []

    def of(kind: str) -> str:
        prefix = "namespace" if kind == "ServiceAccount" else ""
        return ", ".join(
            (f"{s.get('namespace')}/" if prefix else "") + s.get("name", "") for s in subjects if s.get("kind") == kind
        )

    return [
        name_of(value),
        f"{role.get('kind')}/{role.get('name')}",
        age_of(value, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]


def _endpoints(value: Json, now: float) -> list[Any]:
    found = [f"{a.get('ip')}:{p.get('port')}" for s in value.get("subsets") or [] for a in s.get("addresses") or []
             for p in s.get("ports") or []]  # fmt: skip
    text = ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")
    return [name_of(value), text or "<none>", age_of(value, now)]


def _revision(value: Json, now: float) -> list[Any]:
    owner = next((o for o in value["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
    group = str(owner.get("apiVersion", "")).rpartition("/")[0] if owner else ""
    controller = f"{owner['kind'].lower()}{'.' + group if group else ''}/{owner['name']}" if owner else "<none>"
    return [name_of(value), controller, value.get("revision", 0), age_of(value, now)]


def _size(value: Json, key: str) -> int:
    return len(value.get(key) or ())


_HOOKS = printer("Name Webhooks:i Age", row(lambda value: _size(value, "webhooks"), AGE))
_RBAC = "rbac.authorization.k8s.io"
_CRD = "apiextensions.k8s.io"
_EVENT = printer("Last_Seen Type Reason Object | Subobject Source Message First_Seen Count Name", _event)
# Message stands between the two wide columns and the others, as kubectl prints it.
_EVENT = Printer(
    tuple(
        Column(c.name, c.type, "", 0 if c.name == "Message" else c.priority, format=c.format) for c in _EVENT.columns
    ),
    _event,
)
PRINTERS: Mapping[tuple[str, str], Printer] = {
    **settings.PRINTERS,
    ("", "Pod"): printer("Name Ready Status Restarts Age | IP Node Nominated_Node Readiness_Gates", pod_cells),
    ("", "Node"): printer(
        "Name Status Roles Age Version | Internal-IP External-IP OS-Image Kernel-Version Container-Runtime", _node
    ),
    ("", "Namespace"): printer("Name Status Age", row("status.phase", AGE)),
    ("", "ConfigMap"): printer("Name Data:i Age", row(lambda value: _size(value, "data") + _size(value, "binaryData"), AGE)),
    ("", "Secret"): printer("Name Type Data:i Age", row("type", lambda value: _size(value, "data"), AGE)),
    ("", "Service"): printer("Name Type Cluster-IP External-IP Port(s) Age | Selector", _service),
    ("", "Endpoints"): printer("Name Endpoints Age", _endpoints),
    ("", "ServiceAccount"): printer("Name Age", row(AGE)),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): Printer(_EVENT.columns, lambda value, now: _event(_as_core(value), now)),
    ("", "PersistentVolumeClaim"): printer(
        "Name Status Volume Capacity Access_Modes StorageClass VolumeAttributesClass Age | VolumeMode", _claim
    ),
    ("", "PersistentVolume"): printer(
        "Name Capacity Access_Modes Reclaim_Policy Status Claim StorageClass VolumeAttributesClass Reason Age | VolumeMode",
        _volume,
    ),
    ("", "ReplicationController"): printer(
        "Name Desired:i Current:i Ready:i Age | Containers Images Selector", _replica_set
    ),
    ("apps", "Deployment"): printer(
        "Name Ready Up-to-date:i Available:i Age | Containers Images Selector", _deployment
    ),
    ("apps", "ReplicaSet"): printer("Name Desired:i Current:i Ready:i Age | Containers Images Selector", _replica_set),
    ("apps", "StatefulSet"): printer("Name Ready Age | Containers Images", _stateful_set),
    ("apps", "DaemonSet"): printer(
        "Name Desired:i Current:i Ready:i Up-to-date:i Available:i Node_Selector Age | Containers Images Selector",
        _daemon_set,
    ),
    ("apps", "ControllerRevision"): printer("Name Controller Revision:i Age", _revision),
    ("batch", "Job"): printer("Name Status Completions Duration Age | Containers Images Selector", _job),
    ("batch", "CronJob"): printer(
        "Name Schedule Timezone Suspend Active:i Last_Schedule Age | Containers Images Selector", _cron_job
    ),
    ("coordination.k8s.io", "Lease"): printer("Name Holder Age", row("spec.holderIdentity", AGE)),
    ("scheduling.k8s.io", "PriorityClass"): printer(
        "Name Value:i Global-Default Age PreemptionPolicy",
        row(("value", 0), lambda value: str(bool(value.get("globalDefault"))).lower(), AGE, "preemptionPolicy"),
    ),
    ("storage.k8s.io", "StorageClass"): printer(
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", _storage_class
    ),
    ("policy", "PodDisruptionBudget"): printer(
        "Name Min_Available Max_Unavailable Allowed_Disruptions:i Age",
        row(lambda value: str(at(value, "spec.minAvailable", "N/A")), lambda value: str(at(value, "spec.maxUnavailable", "N/A")),
            ("status.disruptionsAllowed", 0), AGE),
    ),
    (_RBAC, "Role"): printer("Name Created_At", CREATED),
    (_RBAC, "ClusterRole"): printer("Name Created_At", CREATED),
    (_RBAC, "RoleBinding"): printer("Name Role Age | Users Groups ServiceAccounts", _binding),
    (_RBAC, "ClusterRoleBinding"): printer("Name Role Age | Users Groups ServiceAccounts", _binding),
    (_CRD, "CustomResourceDefinition"): printer("Name Created_At", CREATED),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _HOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _HOOKS,
}


def _as_core(value: Json) -> Json:

    return to_core(value)
