"""Rules of pods: what may change after creation, the status that a new pod has, graceful deletion."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from pumice_lab.apiserver.errors import FieldProblem, forbidden_value, invalid_value
from pumice_lab.apiserver.strategies.base import Strategy
from pumice_lab.apiserver.strategies.podspec import containers, validate_pod_spec
from pumice_lab.apiserver.strategies.resources import quality

Json = dict[str, Any]

_MAY_CHANGE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


class PodStrategy(Strategy):
    counts_generation = True
    returns_deleted = True
    selectable = frozenset(
        ("metadata.name", "metadata.namespace", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
         "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName")
    )  # fmt: skip

    def default(self, value: Json) -> None:
        spec = value.setdefault("spec", {})
        default_pod_spec(spec)
        default_requests(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_create(self, value: Json) -> None:
        spec = value["spec"]
        value["status"] = {"phase": "Pending", "qosClass": quality(spec)}
        if spec.get("schedulingGates"):
            value["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                 "lastTransitionTime": value["metadata"]["creationTimestamp"],
                 "message": "Scheduling is blocked due to non-empty scheduling gates"}
            ]  # fmt: skip

    def prepare_status_update(self, value: Json, old: Json) -> None:
        status = value.setdefault("status", {})
        status["qosClass"] = old.get("status", {}).get("qosClass") or quality(value["spec"])

    def validate(self, value: Json) -> list[FieldProblem]:
        return validate_pod_spec(value["spec"])

    def validate_create(self, value: Json) -> list[FieldProblem]:
        if value["spec"].get("ephemeralContainers"):
            return [forbidden_value("spec.ephemeralContainers", "cannot be set on create")]
        return []

    def validate_guests(self, value: Json, old: Json) -> list[FieldProblem]:
        """They come, and stay as they are."""
        now = {c.get("name"): c for c in value["spec"].get("ephemeralContainers") or ()}
        return [
            forbidden_value("spec.ephemeralContainers", f'existing ephemeral containers "{before["name"]}" may not be '
                            + ("changed" if before["name"] in now else "removed"))
            for before in old["spec"].get("ephemeralContainers") or () if now.get(before["name"]) != before
        ]  # fmt: skip

    def validate_status(self, value: Json) -> list[FieldProblem]:
        return []  # the spec was valid when it came in, and a kubelet writes often

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        new, before = copy.deepcopy(value["spec"]), old["spec"]
        problems: list[FieldProblem] = []
        problems += _tolerations_only_grow(new, before)
        gates = [g for g in new.get("schedulingGates") or [] if g not in (before.get("schedulingGates") or [])]
        if gates:
            problems.append(forbidden_value("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate "
                                            f"'{gates[0].get('name')}'"))  # fmt: skip
        if new.get("activeDeadlineSeconds") != before.get("activeDeadlineSeconds"):
            limit = before.get("activeDeadlineSeconds")
            if new.get("activeDeadlineSeconds") is None or (limit is not None and new["activeDeadlineSeconds"] > limit):
                detail = f"must be less than or equal to previous value {limit}"
                problems.append(invalid_value("spec.activeDeadlineSeconds", new.get("activeDeadlineSeconds"), detail))
        gated = bool(before.get("schedulingGates"))
        if not problems and _frozen(new, gated) != _frozen(before, gated):
            problems.append(forbidden_value("spec", _MAY_CHANGE))
        return problems

    def fields(self, value: Json) -> Mapping[str, str]:
        spec, status = value.get("spec", {}), value.get("status") or {}
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    def grace(self, value: Json, asked: int | None) -> int:
        spec = value.get("spec", {})
        period = asked if asked is not None else spec.get("terminationGracePeriodSeconds", 30)
        if not spec.get("nodeName") or (value.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return 0  # no kubelet will confirm
        return 1 if period < 0 else int(period)


def _tolerations_only_grow(new: Json, before: Json) -> list[FieldProblem]:
    now = new.get("tolerations") or []
    if all(toleration in now for toleration in before.get("tolerations") or []):
        return []
    return [forbidden_value("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _frozen(spec: Json, gated: bool) -> Json:
    """The part of a pod's spec that an update may not touch (a gated pod may still be steered to other nodes)."""
    free = {
        "tolerations",
        "activeDeadlineSeconds",
        "schedulingGates",
        "terminationGracePeriodSeconds",
    }
    if gated:
        free |= {"nodeSelector", "affinity"}
    frozen = copy.deepcopy({key: value for key, value in spec.items() if key not in free})
    for _, container in containers(frozen):
        container["image"] = ""
    return frozen


# -- Defaults of a pod's spec, in pods and in templates (Kubernetes API reference for Pod) ---------------------------



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
