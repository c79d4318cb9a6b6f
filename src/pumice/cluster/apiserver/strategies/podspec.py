"""Defaults and validation of a pod's spec, in pods and in templates.

Facts: Kubernetes API reference for Pod, "Resource Management for Pods and Containers", "Extended resources".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pumice.cluster.apiserver.errors import FieldProblem, duplicate, invalid_value, required, unsupported
from pumice.cluster.apiserver.names import bad_label, bad_qualified, bad_subdomain
from pumice.cluster.apiserver.strategies.base import validate_labels
from pumice.wire.quantity import parse_quantity

Json = dict[str, Any]
Problems = list[FieldProblem]

POLICIES = ("Always", "OnFailure", "Never")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
OPERATORS = ("Exists", "Equal")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
STANDARD = frozenset(("cpu", "memory", "ephemeral-storage", "storage"))


def containers(spec: Json) -> Iterator[tuple[str, Json]]:
    """Every container with its path below spec."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(field) or []):
            yield f"{field}[{i}]", container


# -- defaults ------------------------------------------------------------------------------------------------------


def default_pod_spec(spec: Json) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    if spec.get("serviceAccountName"):
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    elif spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    for _, container in containers(spec):
        _default_container(container, bool(spec.get("hostNetwork")))
    for volume in spec.get("volumes") or []:
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or []:
        constraint.setdefault("maxSkew", 1)


def default_requests(spec: Json) -> None:
    """A limit without a request is the request too. Of pods only: a template keeps what its author wrote."""
    for _, container in containers(spec):
        resources = container.get("resources") or {}
        for name, limit in (resources.get("limits") or {}).items():
            resources.setdefault("requests", {}).setdefault(name, limit)


def _default_container(container: Json, host_network: bool) -> None:
    image = container.get("image", "")
    tagged = ":" in image.rpartition("/")[2] or "@" in image
    latest = not tagged or image.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    for port in container.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if host_network:
            port.setdefault("hostPort", port.get("containerPort"))
    for variable in container.get("env") or []:
        reference = (variable.get("valueFrom") or {}).get("fieldRef")
        if reference is not None:
            reference.setdefault("apiVersion", "v1")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(name) is not None:
            _default_probe(container[name])
    for handler in (container.get("lifecycle") or {}).values():
        if isinstance(handler, dict) and "httpGet" in handler:
            _default_http(handler["httpGet"])


def _default_probe(probe: Json) -> None:
    probe.setdefault("timeoutSeconds", 1)
    probe.setdefault("periodSeconds", 10)
    probe.setdefault("successThreshold", 1)
    probe.setdefault("failureThreshold", 3)
    if "httpGet" in probe:
        _default_http(probe["httpGet"])


def _default_http(action: Json) -> None:
    action.setdefault("path", "/")
    action.setdefault("scheme", "HTTP")


def _default_volume(volume: Json) -> None:
    if not any(key != "name" for key in volume):
        volume["emptyDir"] = {}
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if volume.get(source) is not None:
            volume[source].setdefault("defaultMode", 420)
    if volume.get("hostPath") is not None:
        volume["hostPath"].setdefault("type", "")
    for item in (volume.get("downwardAPI") or {}).get("items") or []:
        if item.get("fieldRef") is not None:
            item["fieldRef"].setdefault("apiVersion", "v1")
    for source in (volume.get("projected") or {}).get("sources") or []:
        if source.get("serviceAccountToken") is not None:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)


# -- validation ----------------------------------------------------------------------------------------------------


def validate_pod_spec(spec: Json, path: str = "spec") -> Problems:
    problems: Problems = []
    if not spec.get("containers"):
        problems.append(required(f"{path}.containers"))
    problems += _choice(spec, "restartPolicy", POLICIES, path)
    problems += _choice(spec, "dnsPolicy", DNS_POLICIES, path)
    problems += _names(spec, path)
    volumes = _validate_volumes(spec, path, problems)
    for where, container in containers(spec):
        problems += _validate_container(container, f"{path}.{where}", volumes, where.startswith("ephemeral"))
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        problems.append(
            invalid_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than or equal to 0")
        )
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
    problems += _duplicates(spec.get("schedulingGates") or [], f"{path}.schedulingGates")
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
        if sources[:1] == ["hostPath"] and not volume["hostPath"].get("path"):
            problems.append(required(f"{where}.hostPath.path"))
        names.add(name)
    return names


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
    return problems


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
    if port.get("protocol", "TCP") not in ("TCP", "UDP", "SCTP"):
        problems.append(unsupported(f"{path}.protocol", port["protocol"], ("SCTP", "TCP", "UDP")))
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


def is_extended(name: str) -> bool:
    """``example.com/gpu``: a resource of one's own, counted in whole units."""
    return "/" in name and not name.startswith("requests.") and "kubernetes.io/" not in name


def validate_resources(resources: Json, path: str) -> Problems:
    """Names, signs, integers, and requests against limits."""
    problems: Problems = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for field, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            where = f"{path}.{field}[{name}]"
            problems += _validate_resource_name(name, where)
            value = parse_quantity(text)
            if value < 0:
                problems.append(invalid_value(where, str(text), "must be greater than or equal to 0"))
            if is_extended(name) and value.denominator != 1:
                problems.append(invalid_value(where, str(text), "must be an integer"))
    for name, text in requests.items():
        if name in limits:
            limit = parse_quantity(limits[name])
            if is_extended(name) and parse_quantity(text) != limit:
                detail = f"must be equal to {name} limit of {limits[name]}"
                problems.append(invalid_value(f"{path}.requests", str(text), detail))
            elif parse_quantity(text) > limit:
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                problems.append(invalid_value(f"{path}.requests", str(text), detail))
        elif is_extended(name):
            detail = "Limit must be set for non overcommitable resources"
            problems.append(required(f"{path}.limits", detail))
    return problems


def _validate_resource_name(name: str, path: str) -> Problems:
    if why := bad_qualified(name):
        return [invalid_value(path, name, why)]
    if "/" not in name and name not in STANDARD and not name.startswith(("hugepages-", "attachable-volumes-")):
        return [invalid_value(path, name, "must be a standard resource type or fully qualified")]
    return []


def quality(spec: Json) -> str:
    """The QoS class, from cpu and memory of all containers ("Configure Quality of Service for Pods")."""
    requests: dict[str, Any] = {}
    limits_everywhere = True
    for _, container in containers({k: v for k, v in spec.items() if k != "ephemeralContainers"}):
        resources = container.get("resources") or {}
        limits = resources.get("limits") or {}
        for name, text in {**(resources.get("requests") or {})}.items():
            if name in ("cpu", "memory") and parse_quantity(text) > 0:
                requests[name] = True
        for name in ("cpu", "memory"):
            limit = limits.get(name)
            if limit is None or parse_quantity(limit) == 0:
                limits_everywhere = False
            else:
                requests[name] = True
                asked = (resources.get("requests") or {}).get(name, limit)
                limits_everywhere = limits_everywhere and parse_quantity(asked) == parse_quantity(limit)
    if not requests:
        return "BestEffort"
    return "Guaranteed" if limits_everywhere else "Burstable"
