"""Validation of a pod's spec, in pods and in templates.

Facts: Kubernetes API reference for Pod, "Resource Management for Pods and Containers", "Extended resources".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from pumice_lab.apiserver.errors import (
    FieldProblem,
    duplicate,
    forbidden_value,
    invalid_value,
    required,
    unsupported,
)
from pumice_lab.apiserver.names import bad_label, bad_port_name, bad_qualified, bad_subdomain
from pumice_lab.apiserver.strategies.base import validate_labels
from pumice_lab.apiserver.strategies.resources import validate_resources

Json = dict[str, Any]
Problems = list[FieldProblem]

POLICIES = ("Always", "OnFailure", "Never")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
OPERATORS = ("Exists", "Equal")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def containers(spec: Json) -> Iterator[tuple[str, Json]]:
    """Every container with its path below spec."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(field) or []):
            yield f"{field}[{i}]", container


def validate_pod_spec(spec: Json, path: str = "spec") -> Problems:
    problems: Problems = []
    if not spec.get("containers"):
        problems.append(required(f"{path}.containers"))
    problems += _choice(spec, "restartPolicy", POLICIES, path)
    problems += _choice(spec, "dnsPolicy", DNS_POLICIES, path)
    problems += _names(spec, path)
    volumes = _validate_volumes(spec, path, problems)
    claims = _validate_claims(spec.get("resourceClaims") or [], f"{path}.resourceClaims", problems)
    for where, container in containers(spec):
        ephemeral = where.startswith("ephemeral")
        problems += _validate_container(container, f"{path}.{where}", volumes, ephemeral)
        if not ephemeral:
            used = (container.get("resources") or {}).get("claims") or []
            problems += _validate_used_claims(used, claims, f"{path}.{where}.resources.claims")
    problems += _validate_guests(spec, path)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        detail = "must be between 1 and 2147483647, inclusive"
        problems.append(invalid_value(f"{path}.activeDeadlineSeconds", deadline, detail))
    if spec.get("nodeName") and (why := bad_subdomain(spec["nodeName"])):
        problems.append(invalid_value(f"{path}.nodeName", spec["nodeName"], why))
    if spec.get("serviceAccountName") and (why := bad_subdomain(spec["serviceAccountName"])):
        problems.append(invalid_value(f"{path}.serviceAccountName", spec["serviceAccountName"], why))
    problems += validate_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for i, toleration in enumerate(spec.get("tolerations") or []):
        problems += _validate_toleration(toleration, f"{path}.tolerations[{i}]")
    if spec.get("hostname") and (why := bad_label(spec["hostname"])):
        problems.append(invalid_value(f"{path}.hostname", spec["hostname"], why))
    for i, constraint in enumerate(spec.get("topologySpreadConstraints") or []):
        problems += _validate_spread(constraint, f"{path}.topologySpreadConstraints[{i}]")
    problems += _validate_ids(spec.get("securityContext") or {}, f"{path}.securityContext")
    problems += _validate_sysctls((spec.get("securityContext") or {}).get("sysctls") or [], f"{path}.securityContext.sysctls")
    problems += _validate_node_affinity(spec, f"{path}.affinity.nodeAffinity")
    for i, gate in enumerate(spec.get("schedulingGates") or []):
        if why := bad_qualified(gate.get("name", "")):
            problems.append(invalid_value(f"{path}.schedulingGates[{i}]", gate.get("name", ""), why))
    problems += _duplicates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
    return problems


def _validate_spread(constraint: Json, path: str) -> Problems:
    problems: Problems = []
    if constraint.get("maxSkew", 0) <= 0:
        problems.append(invalid_value(f"{path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
    if not constraint.get("topologyKey"):
        problems.append(required(f"{path}.topologyKey", "can not be empty"))
    if constraint.get("whenUnsatisfiable") not in _UNSATISFIABLE:
        problems.append(
            unsupported(f"{path}.whenUnsatisfiable", constraint.get("whenUnsatisfiable", ""), _UNSATISFIABLE)
        )
    return problems


_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def _validate_node_affinity(spec: Json, path: str) -> Problems:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    path += ".requiredDuringSchedulingIgnoredDuringExecution"
    asked = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if asked is None:
        return []
    terms = asked.get("nodeSelectorTerms") or []
    problems = [] if terms else [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    for i, term in enumerate(terms):
        for j, expression in enumerate(term.get("matchExpressions") or []):
            problems += _validate_expression(expression, f"{path}.nodeSelectorTerms[{i}].matchExpressions[{j}]")
    return problems


def _validate_expression(expression: Json, path: str) -> Problems:
    operator, values = expression.get("operator", ""), expression.get("values") or []
    problems: Problems = []
    if operator in ("In", "NotIn") and not values:
        problems.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist") and values:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        problems.append(FieldProblem("FieldValueForbidden", f"{path}.values", detail))
    elif operator in ("Gt", "Lt") and len(values) != 1:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        problems.append(required(f"{path}.values", detail))
    elif operator not in _NODE_OPERATORS:
        problems.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    if why := bad_qualified(expression.get("key", "")):
        problems.append(invalid_value(f"{path}.key", expression.get("key", ""), why))
    return problems


def _choice(value: Json, field: str, known: tuple[str, ...], path: str) -> Problems:
    if field not in value:
        return [required(f"{path}.{field}")]
    return [] if value[field] in known else [unsupported(f"{path}.{field}", value[field], known)]


def _names(spec: Json, path: str) -> Problems:
    problems: Problems = []
    seen: set[str] = set()
    for where, container in containers(spec):
        name = container.get("name", "")
        if not name:
            problems.append(required(f"{path}.{where}.name"))
        elif why := bad_label(name):
            problems.append(invalid_value(f"{path}.{where}.name", name, why))
        elif name in seen:
            problems.append(duplicate(f"{path}.{where}.name", name))
        seen.add(name)
    return problems


def _duplicates(items: list[Json], path: str) -> Problems:
    seen: set[str] = set()
    problems: Problems = []
    for i, item in enumerate(items):
        if item.get("name") in seen:
            problems.append(duplicate(f"{path}[{i}].name", item["name"]))
        seen.add(item.get("name", ""))
    return problems


_VOLUMES = ("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi",
            "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
            "configMap", "azureFile", "flexVolume", "vsphereVolume", "portworxVolume", "azureDisk", "storageos", "projected",
            "scaleIO", "csi", "ephemeral", "image")  # fmt: skip


def _volume_order(source: str) -> int:
    """Of several sources in one volume the first in this order counts, the others are too many."""
    return _VOLUMES.index(source) if source in _VOLUMES else len(_VOLUMES)


_REFERENCES = {"hostPath": "path", "configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}


def _missing_reference(volume: Json, source: str) -> str:
    """The field that names what the volume holds, when it is missing."""
    field = _REFERENCES.get(source, "")
    return field if field and not (volume[source] or {}).get(field) else ""


def _validate_volumes(spec: Json, path: str, problems: Problems) -> set[str]:
    names: set[str] = set()
    for i, volume in enumerate(spec.get("volumes") or []):
        where, name = f"{path}.volumes[{i}]", volume.get("name", "")
        if not name:
            problems.append(required(f"{where}.name"))
        elif why := bad_label(name):
            problems.append(invalid_value(f"{where}.name", name, why))
        elif name in names:
            problems.append(duplicate(f"{where}.name", name))
        sources = sorted(volume.keys() - {"name"}, key=_volume_order)
        for second in sources[1:]:
            problems.append(
                FieldProblem("FieldValueForbidden", f"{where}.{second}", "may not specify more than 1 volume type")
            )
        missing = _missing_reference(volume, sources[0]) if sources else ""
        if missing:
            problems.append(required(f"{where}.{sources[0]}.{missing}"))
        elif name:
            names.add(name)  # a mount of a volume that is wrong is wrong too
    return names


def _validate_claims(claims: list[Json], path: str, problems: Problems) -> set[str]:
    """The claims of the pod (validatePodResourceClaims of Kubernetes' source). Returns their names."""
    names: set[str] = set()
    for i, claim in enumerate(claims):
        where, name = f"{path}[{i}]", claim.get("name", "")
        if not name:
            problems.append(required(f"{where}.name"))
        elif name in names:
            problems.append(duplicate(f"{where}.name", name))
        elif why := bad_label(name):
            problems.append(invalid_value(f"{where}.name", name, why))
        given = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(field) is not None]
        if len(given) != 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified" if given else \
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            shown = {field[0].upper() + field[1:]: claim.get(field) for field in _CLAIM}
            problems.append(invalid_value(where, shown, detail))
        for field in given:
            if why := bad_subdomain(claim[field]):
                problems.append(invalid_value(f"{where}.{field}", claim[field], why))
        names.add(name)
    return names - {""}


_CLAIM = ("name", "resourceClaimName", "resourceClaimTemplateName")
_SAID = 8
"""So many names of claims are said in one problem: a pod may have thousands of either."""


def _validate_used_claims(used: list[Json], claims: set[str], path: str) -> Problems:
    """Find a container's uses of claims that the pod has not, or that are used twice (validateResourceClaimNames there)."""
    problems: Problems = []
    whole: set[str] = set()
    parts: dict[str, set[str]] = {}
    for i, claim in enumerate(used):
        where, name, request = f"{path}[{i}]", claim.get("name", ""), claim.get("request", "")
        if not name:
            problems.append(required(where))
            continue
        if name in whole:
            problems.append(duplicate(where, name))
        elif request:
            if why := bad_label(request):
                problems.append(invalid_value(f"{where}.request", request, why))
            if request in parts.setdefault(name, set()):
                problems.append(duplicate(where, f"{name}/{request}"))
            parts[name].add(request)
        else:
            problems += [duplicate(where, name)] * len(parts.get(name, ()))
            whole.add(name)
        if name not in claims:
            detail = "must be one of the names in pod.spec.resourceClaims"
            detail += f": {_some(claims)}" if claims else " which is empty"
            problems.append(FieldProblem("FieldValueNotFound", where, detail, name))
    return problems


def _some(names: set[str]) -> str:
    return ", ".join(sorted(names)) if len(names) <= _SAID else ", ".join([*sorted(itertools.islice(names, _SAID)), "..."])


def _validate_container(container: Json, path: str, volumes: set[str], ephemeral: bool) -> Problems:
    problems: Problems = []
    if not container.get("image"):
        problems.append(required(f"{path}.image"))
    elif container["image"] != container["image"].strip():
        problems.append(
            invalid_value(f"{path}.image", container["image"], "must not have leading or trailing whitespace")
        )
    if container.get("imagePullPolicy", "Always") not in PULL_POLICIES:
        problems.append(unsupported(f"{path}.imagePullPolicy", container["imagePullPolicy"], PULL_POLICIES))
    for i, variable in enumerate(container.get("env") or []):
        problems += _validate_variable(variable, f"{path}.env[{i}]")
    points: set[str] = set()
    for i, mount in enumerate(container.get("volumeMounts") or []):
        where = f"{path}.volumeMounts[{i}]"
        if not mount.get("name"):
            problems.append(required(f"{where}.name"))
        elif mount["name"] not in volumes:
            problems.append(FieldProblem("FieldValueNotFound", f"{where}.name", "", mount["name"]))
        if not mount.get("mountPath"):
            problems.append(required(f"{where}.mountPath"))
        elif mount["mountPath"] in points:
            detail = "must be unique"
            problems.append(invalid_value(f"{where}.mountPath", mount["mountPath"], detail))
        points.add(mount.get("mountPath", ""))
    for i, port in enumerate(container.get("ports") or []):
        problems += _validate_port(port, f"{path}.ports[{i}]")
    if not ephemeral:
        problems += validate_resources(container.get("resources") or {}, f"{path}.resources")
    if ".initContainers[" in path and container.get("restartPolicy") != "Always":
        detail = "may not be set for init containers without restartPolicy=Always"
        for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(field) is not None:
                problems.append(FieldProblem("FieldValueForbidden", f"{path}.{field}", detail))
    problems += _validate_ids(container.get("securityContext") or {}, f"{path}.securityContext")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(field)) is not None:
            problems += _validate_probe(probe, f"{path}.{field}")
    return problems


_NOT_FOR_GUESTS = ("lifecycle", "livenessProbe", "ports", "readinessProbe", "resources", "startupProbe")


def _validate_guests(spec: Json, path: str) -> Problems:
    """Ephemeral containers hold nothing and promise nothing, and templates have none."""
    problems: Problems = []
    guests = spec.get("ephemeralContainers") or []
    if guests and path != "spec":
        problems.append(forbidden_value(f"{path}.ephemeralContainers", "ephemeral containers not allowed in pod template"))
    others = {c.get("name") for field in ("containers", "initContainers") for c in spec.get(field) or []}
    for i, guest in enumerate(guests):
        where, target = f"{path}.ephemeralContainers[{i}]", guest.get("targetContainerName")
        problems += [forbidden_value(f"{where}.{field}", "cannot be set for an Ephemeral Container")
                     for field in _NOT_FOR_GUESTS if guest.get(field)]  # fmt: skip
        if target and target not in others:
            problems.append(FieldProblem("FieldValueNotFound", f"{where}.targetContainerName", "", target))
    return problems


def _validate_ids(context: Json, path: str) -> Problems:
    return [
        invalid_value(f"{path}.{field}", context[field], "must be between 0 and 2147483647, inclusive")
        for field in ("runAsUser", "runAsGroup", "fsGroup")
        if not 0 <= context.get(field, 0) <= 2147483647
    ]


def _validate_probe(probe: Json, path: str) -> Problems:
    asks = any(handler in probe for handler in ("exec", "httpGet", "tcpSocket", "grpc"))
    return ([] if asks else [required(path, "must specify a handler type")]) + [
        invalid_value(f"{path}.{field}", probe[field], "must be greater than or equal to 0")
        for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
        if probe.get(field, 0) < 0
    ]


def _validate_variable(variable: Json, path: str) -> Problems:
    name = variable.get("name", "")
    if not name:
        return [required(f"{path}.name")]
    if "=" in name or any(not " " <= char <= "~" for char in name):
        return [invalid_value(f"{path}.name", name, "environment variable names must be printable ASCII without '='")]
    if variable.get("valueFrom") is not None:
        if variable.get("value"):
            return [invalid_value(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")]
        if len(variable["valueFrom"]) != 1:
            return [invalid_value(f"{path}.valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, "
                                  "`configMapKeyRef` or `secretKeyRef`")]  # fmt: skip
    return []


def _validate_port(port: Json, path: str) -> Problems:
    problems: Problems = []
    if not port.get("containerPort"):
        problems.append(required(f"{path}.containerPort"))
    for field in ("containerPort", "hostPort"):
        number = port.get(field)
        if number and not 1 <= number <= 65535:
            problems.append(invalid_value(f"{path}.{field}", number, "must be between 1 and 65535, inclusive"))
    if port.get("name") and (why := bad_port_name(port["name"])):
        problems.append(invalid_value(f"{path}.name", port["name"], why))
    if port.get("protocol", "TCP") not in ("TCP", "UDP", "SCTP"):
        problems.append(unsupported(f"{path}.protocol", port["protocol"], ("SCTP", "TCP", "UDP")))
    return problems


_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"


def _validate_sysctls(sysctls: list[Json], path: str) -> Problems:
    """Names as the kernel has them; which of them a node lets pods set is the kubelet's to say."""
    problems: Problems = []
    seen: set[str] = set()
    for i, sysctl in enumerate(sysctls):
        where, name = f"{path}[{i}].name", sysctl.get("name", "")
        if not name:
            problems.append(required(where))
        elif len(name) > 253 or not re.fullmatch(_SYSCTL, name):
            detail = f"must have at most 253 characters and match regex ^{_SYSCTL}$"
            problems.append(invalid_value(where, name, detail))
        elif name in seen:
            problems.append(duplicate(where, name))
        seen.add(name)
    return problems


def _validate_toleration(toleration: Json, path: str) -> Problems:
    problems: Problems = []
    operator = toleration.get("operator") or "Equal"
    if operator not in OPERATORS:
        problems.append(unsupported(f"{path}.operator", operator, OPERATORS))
    if not toleration.get("key") and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        problems.append(invalid_value(f"{path}.operator", operator, detail))
    if operator == "Exists" and toleration.get("value"):
        problems.append(
            invalid_value(f"{path}.operator", toleration, "value must be empty when `operator` is 'Exists'")
        )
    if toleration.get("key") and (why := bad_qualified(toleration["key"])):
        problems.append(invalid_value(f"{path}.key", toleration["key"], why))
    if toleration.get("effect") and toleration["effect"] not in EFFECTS:
        problems.append(unsupported(f"{path}.effect", toleration["effect"], EFFECTS))
    if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        problems.append(invalid_value(f"{path}.effect", toleration.get("effect", ""), detail))
    return problems
