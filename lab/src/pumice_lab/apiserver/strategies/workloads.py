"""Rules of the kinds that make pods: Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, ReplicationController."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pumice.wire.cron import bad_zone, parse_schedule
from pumice.wire.objects import selects
from pumice_lab.apiserver.errors import FieldProblem, invalid_value, required, unsupported
from pumice_lab.apiserver.names import bad_label, bad_label_value
from pumice_lab.apiserver.strategies.base import Strategy, at, validate_labels
from pumice_lab.apiserver.strategies.job_spec import (
    default_job_spec,
    default_patterns,
    validate_job_spec,
    validate_job_update,
)
from pumice_lab.apiserver.strategies.job_status import validate_job_status
from pumice_lab.apiserver.strategies.pods import default_pod_spec
from pumice_lab.apiserver.strategies.podspec import validate_pod_spec

Json = dict[str, Any]


class WorkloadStrategy(Strategy):
    """A selector, a pod template and usually a number of replicas."""

    counts_generation = True
    replicas: int | None = 1
    fixed_policy: tuple[str, ...] = ("Always",)
    template = "spec.template"
    selector_immutable = True

    def default(self, value: Json) -> None:
        spec = value.setdefault("spec", {})
        if self.replicas is not None:
            spec.setdefault("replicas", self.replicas)
        if value["kind"] != "ReplicationController":  # whose template may be missing
            place = value
            for key in self.template.split("."):
                place = place.setdefault(key, {})
        template = at(value, self.template)
        if template is not None:
            default_pod_spec(template.setdefault("spec", {}))

    def prepare_create(self, value: Json) -> None:
        value["status"] = {}

    def validate(self, value: Json) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        replicas = at(value, "spec.replicas", 0)
        if replicas < 0:
            problems.append(invalid_value("spec.replicas", replicas, "must be greater than or equal to 0"))
        template = at(value, self.template) or {}
        problems += self.validate_selector(value, template)
        problems += validate_labels(at(template, "metadata.labels") or {}, f"{self.template}.labels")
        policy = at(template, "spec.restartPolicy")
        if policy is not None and policy not in self.fixed_policy:
            problems.append(unsupported(f"{self.template}.spec.restartPolicy", policy, self.fixed_policy))
        problems += validate_pod_spec(self.pod_spec(value, template), f"{self.template}.spec")
        if self.fixed_policy == ("Always",) and at(template, "spec.activeDeadlineSeconds") is not None:
            detail = f"activeDeadlineSeconds in {value['kind']} is not Supported"
            problems.append(FieldProblem("FieldValueForbidden", f"{self.template}.spec.activeDeadlineSeconds", detail))
        return problems

    def pod_spec(self, value: Json, template: Json) -> Json:
        """Return the template of its pods."""
        return template.get("spec") or {}

    def validate_selector(self, value: Json, template: Json) -> list[FieldProblem]:
        selector = at(value, "spec.selector")
        if not selector or not (selector.get("matchLabels") or selector.get("matchExpressions")):
            if selector is None:
                have = at(template, "metadata.labels") or {}
                detail = "`selector` does not match template `labels`"
                mismatch = invalid_value("spec.template.metadata.labels", have, detail)
                return [mismatch] if value["kind"] == "DaemonSet" else [required("spec.selector"), mismatch]
            return [invalid_value("spec.selector", selector, f"empty selector is invalid for {value['kind'].lower()}")]
        labels = at(template, "metadata.labels") or {}
        if not selects(selector, labels):
            return [
                invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
            ]
        return []

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        if self.selector_immutable and at(value, "spec.selector") != at(old, "spec.selector"):
            return [invalid_value("spec.selector", at(value, "spec.selector"), "field is immutable")]
        return []


class DeploymentStrategy(WorkloadStrategy):
    def default(self, value: Json) -> None:
        super().default(value)
        spec = value["spec"]
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def validate(self, value: Json) -> list[FieldProblem]:
        problems = super().validate(value)
        kind = at(value, "spec.strategy.type")
        if kind not in ("Recreate", "RollingUpdate"):
            problems.append(unsupported("spec.strategy", at(value, "spec.strategy"), ("Recreate", "RollingUpdate")))
        elif kind == "Recreate" and at(value, "spec.strategy.rollingUpdate") is not None:
            detail = "may not be specified when strategy `type` is 'Recreate'"
            problems.append(FieldProblem("FieldValueForbidden", "spec.strategy.rollingUpdate", detail))
        return problems


class ReplicaSetStrategy(WorkloadStrategy):
    selectable = frozenset(("metadata.name", "metadata.namespace", "status.replicas"))

    def prepare_create(self, value: Json) -> None:
        value["status"] = {"replicas": 0}

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"status.replicas": str(at(value, "status.replicas", 0))}


class StatefulSetStrategy(WorkloadStrategy):
    def default(self, value: Json) -> None:
        super().default(value)
        spec = value["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        spec.setdefault("revisionHistoryLimit", 10)
        update = spec.setdefault("updateStrategy", {})
        update.setdefault("type", "RollingUpdate")
        if update["type"] == "RollingUpdate":
            update.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        keep = {"whenDeleted": "Retain", "whenScaled": "Retain"}
        spec.setdefault("persistentVolumeClaimRetentionPolicy", keep)

    def prepare_create(self, value: Json) -> None:
        value["status"] = {"replicas": 0, "availableReplicas": 0}

    def pod_spec(self, value: Json, template: Json) -> Json:
        """With a volume for each of its claims, which take the place of the template's of the same name."""
        spec = template.get("spec") or {}
        claimed = [at(claim, "metadata.name") for claim in at(value, "spec.volumeClaimTemplates") or []]
        own = [volume for volume in spec.get("volumes") or [] if volume.get("name") not in claimed]
        return {**spec, "volumes": [*own, *({"name": name, "emptyDir": {}} for name in claimed if name)]}


_GENERATION = "deprecated.daemonset.template.generation"  # how apps/v1 shows a field of the kind's first version


class DaemonSetStrategy(WorkloadStrategy):
    replicas = None

    def default(self, value: Json) -> None:
        super().default(value)
        value["metadata"].setdefault("annotations", {}).setdefault(_GENERATION, "1")
        spec = value["spec"]
        spec.setdefault("revisionHistoryLimit", 10)
        update = spec.setdefault("updateStrategy", {})
        update.setdefault("type", "RollingUpdate")
        if update["type"] == "RollingUpdate":
            rolling = update.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)

    def prepare_update(self, value: Json, old: Json) -> None:
        count = int((old["metadata"].get("annotations") or {}).get(_GENERATION, "1"))
        count += at(value, "spec.template") != at(old, "spec.template")
        value["metadata"].setdefault("annotations", {})[_GENERATION] = str(count)

    def prepare_create(self, value: Json) -> None:
        counters = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        value["status"] = dict.fromkeys(counters, 0)


class JobStrategy(WorkloadStrategy):
    replicas = None
    orphans_by_default = True
    fixed_policy = ("Always", "OnFailure", "Never")  # of any pod; a Job's own rule follows
    selectable = frozenset(("metadata.name", "metadata.namespace", "status.successful"))

    def default(self, value: Json) -> None:
        super().default(value)
        spec = value["spec"]
        default_job_spec(spec)
        default_patterns(spec)

    def prepare_create(self, value: Json) -> None:
        """Pods of a Job are found by its uid, so that two Jobs of one name never share them."""
        value["status"] = {}
        spec, uid = value["spec"], value["metadata"]["uid"]
        if spec.get("manualSelector"):
            return
        labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
        name = value["metadata"].get("name", "")
        labels |= {"controller-uid": uid, "job-name": name,
                   "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}  # fmt: skip
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        if not value["metadata"].get("labels") and not bad_label_value(name):
            value["metadata"]["labels"] = dict(labels)

    def validate(self, value: Json) -> list[FieldProblem]:
        spec, name = value["spec"], value["metadata"].get("name", "")
        problems = super().validate(value) + validate_job_spec(spec, "spec")
        if spec.get("completionMode") == "Indexed" and (spec.get("completions") or 0) > 0:
            last = f"{name}-{spec['completions'] - 1}"
            if bad_label(last):
                detail = f"will not able to create pod with invalid DNS label: {last}"
                problems.append(invalid_value("metadata.name", name, detail))
        return problems

    def validate_update(self, value: Json, old: Json) -> list[FieldProblem]:
        problems = super().validate_update(value, old) + validate_job_update(value["spec"], old["spec"])
        if at(value, "spec.template") != at(old, "spec.template") and not at(old, "spec.suspend"):
            problems.append(invalid_value("spec.template", at(value, "spec.template"), "field is immutable"))
        return problems

    def validate_again(self, value: Json, old: Json, *, narrow: bool) -> list[FieldProblem]:
        return validate_job_status(value, old) if narrow else self.validate(value)

    def fields(self, value: Json) -> Mapping[str, str]:
        return {"status.successful": str(at(value, "status.succeeded", 0))}


class CronJobStrategy(WorkloadStrategy):
    replicas = None
    fixed_policy = ("Always", "OnFailure", "Never")  # of any pod; a Job's own rule follows
    template = "spec.jobTemplate.spec.template"
    selector_immutable = False

    def default(self, value: Json) -> None:
        super().default(value)
        spec = value["spec"]
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        default_patterns(spec["jobTemplate"].get("spec") or {})

    def validate(self, value: Json) -> list[FieldProblem]:
        path = "spec.jobTemplate.spec"
        return super().validate(value) + validate_job_spec(at(value, path) or {}, path)

    def validate_selector(self, value: Json, template: Json) -> list[FieldProblem]:
        text, zone = at(value, "spec.schedule"), at(value, "spec.timeZone")
        problems = [] if text else [required("spec.schedule")]
        if text and "TZ" in text:
            why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            problems.append(invalid_value("spec.schedule", text, why))
        elif text:
            try:
                parse_schedule(text)
            except ValueError as wrong:
                problems.append(invalid_value("spec.schedule", text, str(wrong)))
        if zone is not None and (why := bad_zone(zone)):
            problems.append(invalid_value("spec.timeZone", zone, why))
        return problems


class ReplicationControllerStrategy(WorkloadStrategy):
    returns_deleted = True
    orphans_by_default = True
    selector_immutable = False

    def default(self, value: Json) -> None:
        super().default(value)
        labels = at(value, "spec.template.metadata.labels")
        if labels and not value["spec"].get("selector"):
            value["spec"]["selector"] = dict(labels)

    def prepare_create(self, value: Json) -> None:
        value["status"] = {"replicas": 0}

    def validate_selector(self, value: Json, template: Json) -> list[FieldProblem]:
        selector = at(value, "spec.selector")
        if not selector:
            return [required("spec.selector")]
        labels = at(template, "metadata.labels") or {}
        if not selects({"matchLabels": selector}, labels):
            return [
                invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")
            ]
        return []


class BudgetStrategy(Strategy):
    counts_generation = True

    def prepare_create(self, value: Json) -> None:
        value["status"] = {}
        self.prepare_status_update(value, value)

    def prepare_status_update(self, value: Json, old: Json) -> None:
        counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        value["status"] = dict.fromkeys(counts, 0) | (value.get("status") or {})

    def validate(self, value: Json) -> list[FieldProblem]:
        spec = value.get("spec") or {}
        if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
            return [invalid_value("spec", spec, "minAvailable and maxUnavailable cannot be both set")]
        problems = _share(spec.get("minAvailable"), "spec.minAvailable")
        problems += _share(spec.get("maxUnavailable"), "spec.maxUnavailable")
        policy, known = spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget")
        if policy is not None and policy not in known:
            problems.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, known))
        return problems


def _share(value: Any, path: str) -> list[FieldProblem]:
    """Of a number of pods, or a part of a hundred of them (ValidatePositiveIntOrPercent, IsNotMoreThan100Percent)."""
    if isinstance(value, int) and value < 0:
        return [invalid_value(path, value, "must be greater than or equal to 0")]
    if isinstance(value, str) and not _PERCENT.fullmatch(value):
        return [invalid_value(path, value, "must be an integer or percentage (e.g '5%')")]
    if isinstance(value, str) and int(value[:-1]) > 100:
        return [invalid_value(path, value, "must not be greater than 100%")]
    return []


_PERCENT = re.compile(r"[0-9]{1,9}%")


STRATEGIES: Mapping[tuple[str, str], Strategy] = {
    ("apps", "Deployment"): DeploymentStrategy(),
    ("apps", "ReplicaSet"): ReplicaSetStrategy(),
    ("apps", "StatefulSet"): StatefulSetStrategy(),
    ("apps", "DaemonSet"): DaemonSetStrategy(),
    ("batch", "Job"): JobStrategy(),
    ("batch", "CronJob"): CronJobStrategy(),
    ("", "ReplicationController"): ReplicationControllerStrategy(),
    ("policy", "PodDisruptionBudget"): BudgetStrategy(),
}
