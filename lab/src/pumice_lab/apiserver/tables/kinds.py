"""Printer columns of the built-in kinds, as kubectl users know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumice.wire.kubectl_columns import age, duration_since, human, parse_time, pod_cells
from pumice_lab.apiserver.strategies.base import at
from pumice_lab.apiserver.tables import settings
from pumice_lab.apiserver.tables.printer import Column, Printer, joined, labels_text, printer, selector_text

Json = dict[str, Any]


def _name(value: Json) -> str:
    return str(value["metadata"].get("name", ""))


def _age(value: Json, now: float) -> str:
    return age(value["metadata"], now)


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
    return [_name(value), ready, joined(roles), _age(value, now), info.get("kubeletVersion", ""),
            addresses.get("InternalIP", "<none>"), addresses.get("ExternalIP", "<none>"), info.get("osImage") or "<unknown>",
            info.get("kernelVersion") or "<unknown>", info.get("containerRuntimeVersion") or "<unknown>"]  # fmt: skip


def _deployment(value: Json, now: float) -> list[Any]:
    status, spec = value.get("status") or {}, value.get("spec") or {}
    names, images = _containers(value)
    return [_name(value), f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}", status.get("updatedReplicas", 0),
            status.get("availableReplicas", 0), _age(value, now), names, images, selector_text(spec.get("selector"))]  # fmt: skip


def _replica_set(value: Json, now: float) -> list[Any]:
    status, spec = value.get("status") or {}, value.get("spec") or {}
    names, images = _containers(value)
    selector = spec.get("selector")
    text = selector_text(selector) if value.get("kind") == "ReplicaSet" else labels_text(selector)
    return [_name(value), spec.get("replicas", 0), status.get("replicas", 0), status.get("readyReplicas", 0),
            _age(value, now), names, images, text]  # fmt: skip


def _stateful_set(value: Json, now: float) -> list[Any]:
    names, images = _containers(value)
    ready = f"{at(value, 'status.readyReplicas', 0)}/{at(value, 'spec.replicas', 0)}"
    return [_name(value), ready, _age(value, now), names, images]


def _daemon_set(value: Json, now: float) -> list[Any]:
    status, (names, images) = value.get("status") or {}, _containers(value)
    nodes = labels_text(at(value, "spec.template.spec.nodeSelector"))
    return [_name(value), status.get("desiredNumberScheduled", 0), status.get("currentNumberScheduled", 0),
            status.get("numberReady", 0), status.get("updatedNumberScheduled", 0), status.get("numberAvailable", 0),
            nodes, _age(value, now), names, images, selector_text(at(value, "spec.selector"))]  # fmt: skip


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
        end = parse_time(status["completionTime"]) if status.get("completionTime") else now
        took = human(end - parse_time(status["startTime"]))
    names, images = _containers(value)
    return [_name(value), state, f"{status.get('succeeded', 0)}/{goal}", took, _age(value, now), names, images,
            selector_text(spec.get("selector"))]  # fmt: skip


def _cron_job(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    last = duration_since(status["lastScheduleTime"], now) if status.get("lastScheduleTime") else "<none>"
    names, images = _containers(value, "spec.jobTemplate.spec.template.spec")
    return [_name(value), spec.get("schedule", ""), spec.get("timeZone") or "<none>", str(bool(spec.get("suspend"))),
            len(status.get("active") or []), last, _age(value, now), names, images,
            selector_text(at(value, "spec.jobTemplate.spec.selector"))]  # fmt: skip


def _service(value: Json, now: float) -> list[Any]:
    spec = value.get("spec") or {}
    ports = [f"{p.get('port')}{':' + str(p['nodePort']) if p.get('nodePort') else ''}/{p.get('protocol', 'TCP')}"
             for p in spec.get("ports") or []]  # fmt: skip
    external = spec.get("externalName") if spec.get("type") == "ExternalName" else joined(spec.get("externalIPs") or [])
    return [_name(value), spec.get("type", ""), spec.get("clusterIP") or "<none>", external, joined(ports), _age(value, now),
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
            duration_since(first, now), count, _name(value)]  # fmt: skip


def _namespace(value: Json, now: float) -> list[Any]:
    return [_name(value), at(value, "status.phase", ""), _age(value, now)]


def _config_map(value: Json, now: float) -> list[Any]:
    return [_name(value), len(value.get("data") or {}) + len(value.get("binaryData") or {}), _age(value, now)]


def _secret(value: Json, now: float) -> list[Any]:
    return [_name(value), value.get("type", ""), len(value.get("data") or {}), _age(value, now)]


def _service_account(value: Json, now: float) -> list[Any]:
    return [_name(value), _age(value, now)]


def _lease(value: Json, now: float) -> list[Any]:
    return [_name(value), at(value, "spec.holderIdentity", ""), _age(value, now)]


def _priority_class(value: Json, now: float) -> list[Any]:
    return [_name(value), value.get("value", 0), str(bool(value.get("globalDefault"))).lower(), _age(value, now),
            value.get("preemptionPolicy", "")]  # fmt: skip


def _claim(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    phase = "Terminating" if value["metadata"].get("deletionTimestamp") else status.get("phase", "")
    return [_name(value), phase, spec.get("volumeName", ""), at(status, "capacity.storage", "") if spec.get("volumeName") else "",
            _modes(status.get("accessModes") or []), spec.get("storageClassName", ""),
            spec.get("volumeAttributesClassName") or "<unset>", _age(value, now), spec.get("volumeMode", "")]  # fmt: skip


def _volume(value: Json, now: float) -> list[Any]:
    spec, status = value.get("spec") or {}, value.get("status") or {}
    claim = spec.get("claimRef") or {}
    name = f"{claim.get('namespace')}/{claim.get('name')}" if claim else ""
    return [_name(value), at(spec, "capacity.storage", ""), _modes(spec.get("accessModes") or []),
            spec.get("persistentVolumeReclaimPolicy", ""), status.get("phase", ""), name, spec.get("storageClassName", ""),
            spec.get("volumeAttributesClassName") or "<unset>", status.get("reason", ""), _age(value, now),
            spec.get("volumeMode", "")]  # fmt: skip


def _modes(modes: list[str]) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in modes)


def _storage_class(value: Json, now: float) -> list[Any]:
    default = at(value, "metadata.annotations", {}).get("storageclass.kubernetes.io/is-default-class") == "true"
    return [_name(value) + (" (default)" if default else ""), value.get("provisioner", ""), value.get("reclaimPolicy", "Delete"),
            value.get("volumeBindingMode", "Immediate"), str(bool(value.get("allowVolumeExpansion"))).lower(),
            _age(value, now)]  # fmt: skip


def _budget(value: Json, now: float) -> list[Any]:
    spec = value.get("spec") or {}
    return [_name(value), str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A")),
            at(value, "status.disruptionsAllowed", 0), _age(value, now)]  # fmt: skip


def _role(value: Json, now: float) -> list[Any]:
    return [_name(value), value["metadata"].get("creationTimestamp", "")]


def _binding(value: Json, now: float) -> list[Any]:
    role, subjects = value.get("roleRef") or {}, value.get("subjects") or []

    def of(kind: str) -> str:
        prefix = "namespace" if kind == "ServiceAccount" else ""
        return ", ".join(
            (f"{s.get('namespace')}/" if prefix else "") + s.get("name", "") for s in subjects if s.get("kind") == kind
        )

    return [
        _name(value),
        f"{role.get('kind')}/{role.get('name')}",
        _age(value, now),
        of("User"),
        of("Group"),
        of("ServiceAccount"),
    ]


def _definition(value: Json, now: float) -> list[Any]:
    return [_name(value), value["metadata"].get("creationTimestamp", "")]


def _endpoints(value: Json, now: float) -> list[Any]:
    found = [f"{a.get('ip')}:{p.get('port')}" for s in value.get("subsets") or [] for a in s.get("addresses") or []
             for p in s.get("ports") or []]  # fmt: skip
    text = ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "")
    return [_name(value), text or "<none>", _age(value, now)]


def _revision(value: Json, now: float) -> list[Any]:
    owner = next((o for o in value["metadata"].get("ownerReferences") or [] if o.get("controller")), None)
    group = str(owner.get("apiVersion", "")).rpartition("/")[0] if owner else ""
    controller = f"{owner['kind'].lower()}{'.' + group if group else ''}/{owner['name']}" if owner else "<none>"
    return [_name(value), controller, value.get("revision", 0), _age(value, now)]


def _hooks(value: Json, now: float) -> list[Any]:
    return [_name(value), len(value.get("webhooks") or []), _age(value, now)]


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
    ("", "Namespace"): printer("Name Status Age", _namespace),
    ("", "ConfigMap"): printer("Name Data:i Age", _config_map),
    ("", "Secret"): printer("Name Type Data:i Age", _secret),
    ("", "Service"): printer("Name Type Cluster-IP External-IP Port(s) Age | Selector", _service),
    ("", "Endpoints"): printer("Name Endpoints Age", _endpoints),
    ("", "ServiceAccount"): printer("Name Age", _service_account),
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
    ("coordination.k8s.io", "Lease"): printer("Name Holder Age", _lease),
    ("scheduling.k8s.io", "PriorityClass"): printer(
        "Name Value:i Global-Default Age PreemptionPolicy", _priority_class
    ),
    ("storage.k8s.io", "StorageClass"): printer(
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age", _storage_class
    ),
    ("policy", "PodDisruptionBudget"): printer("Name Min_Available Max_Unavailable Allowed_Disruptions:i Age", _budget),
    (_RBAC, "Role"): printer("Name Created_At", _role),
    (_RBAC, "ClusterRole"): printer("Name Created_At", _role),
    (_RBAC, "RoleBinding"): printer("Name Role Age | Users Groups ServiceAccounts", _binding),
    (_RBAC, "ClusterRoleBinding"): printer("Name Role Age | Users Groups ServiceAccounts", _binding),
    (_CRD, "CustomResourceDefinition"): printer("Name Created_At", _definition),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): printer("Name Webhooks:i Age", _hooks),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): printer("Name Webhooks:i Age", _hooks),
}


def _as_core(value: Json) -> Json:
    from pumice_lab.apiserver.events import to_core

    return to_core(value)
