"""Random manifests, mostly right and sometimes wrong, for comparing two API servers."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Json = dict[str, Any]


class Maker:
    """``chance`` is how often a part is wrong on purpose."""

    def __init__(self, rng: random.Random, chance: float = 0.03) -> None:
        self.rng, self.chance = rng, chance

    def pick(self, good: list[Any], bad: list[Any] | None = None) -> Any:
        return self.rng.choice(bad) if bad and self.rng.random() < self.chance else self.rng.choice(good)

    def some(self, likely: float, make: Callable[[], Any], into: Json, key: str) -> None:
        if self.rng.random() < likely:
            into[key] = make()

    # -- pods ----------------------------------------------------------------------------------------------------------

    def quantities(self) -> Json:
        names = self.rng.sample(
            ["cpu", "memory", "example.com/gpu", "ephemeral-storage", "hugepages-2Mi"], self.rng.randint(0, 2)
        )
        if self.rng.random() < self.chance:
            names.append(self.rng.choice(["apples", "bad name", "x/y/z"]))
        amounts = {"cpu": ["1", "500m", "0.25", 2], "memory": ["1Gi", "1024Mi", "64M", 1048576], "example.com/gpu": [1, "2"],
                   "ephemeral-storage": ["1Gi"], "hugepages-2Mi": ["4Mi"]}  # fmt: skip
        return {name: self.pick(amounts.get(name, ["1"]), ["-1", "1500m", "0"]) for name in names}

    def resources(self) -> Json:
        limits = self.quantities()
        value: Json = {"limits": limits} if limits else {}
        if self.rng.random() < 0.4:
            value["requests"] = {k: v for k, v in limits.items() if self.rng.random() < 0.6} or self.quantities()
        return value

    def probe(self) -> Json:
        handler = self.rng.choice(
            [{"exec": {"command": ["true"]}}, {"httpGet": {"port": 80}}, {"tcpSocket": {"port": "web"}}]
        )
        value: Json = dict(handler)
        self.some(0.3, lambda: self.pick([1, 5], [-1]), value, "initialDelaySeconds")
        self.some(0.3, lambda: self.pick([1, 20], [-1]), value, "periodSeconds")
        return value

    def container(self, name: str) -> Json:
        value: Json = {
            "name": self.pick([name], ["", "Upper", "a" * 64]),
            "image": self.pick(["i:1", "r.io/i", "i:latest", "i@sha256:0"], [""]),
        }
        self.some(0.5, self.resources, value, "resources")
        self.some(
            0.3, lambda: [{"name": self.pick(["A", "B_1"], ["", "a=b"]), "value": self.pick(["x", ""])}], value, "env"
        )
        self.some(0.2, lambda: [{"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}], value, "env")
        self.some(
            0.3,
            lambda: [{"containerPort": self.pick([80, 443], [0, 70000]), "name": self.pick(["web"], ["Bad_Name"])}],
            value,
            "ports",
        )
        self.some(0.2, self.probe, value, "livenessProbe")
        self.some(0.2, lambda: {"readOnlyRootFilesystem": self.pick([True, False])}, value, "securityContext")
        self.some(0.2, lambda: self.pick(["Always", "Never", "IfNotPresent"], ["Sometimes"]), value, "imagePullPolicy")
        self.some(
            0.3,
            lambda: [{"name": self.pick(["v"], ["none"]), "mountPath": self.pick(["/v"], [""])}],
            value,
            "volumeMounts",
        )
        self.some(0.1, lambda: {"preStop": {"exec": {"command": ["true"]}}}, value, "lifecycle")
        return value

    def toleration(self) -> Json:
        value: Json = {"operator": self.pick(["Exists", "Equal"], ["Like"])}
        self.some(0.8, lambda: self.pick(["gpu", "a.io/b"], ["bad key"]), value, "key")
        self.some(0.3, lambda: "yes", value, "value")
        self.some(0.4, lambda: self.pick(["NoSchedule", "NoExecute"], ["Never"]), value, "effect")
        self.some(0.2, lambda: 60, value, "tolerationSeconds")
        return value

    def affinity(self) -> Json:
        term = {
            "matchExpressions": [{"key": "zone", "operator": self.pick(["In", "Exists"], ["Near"]), "values": ["a"]}]
        }
        if term["matchExpressions"][0]["operator"] == "Exists":
            del term["matchExpressions"][0]["values"]
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}

    def spread(self) -> Json:
        return {"maxSkew": self.pick([1, 2], [0]), "topologyKey": self.pick(["zone"], [""]),
                "whenUnsatisfiable": self.pick(["DoNotSchedule", "ScheduleAnyway"], ["Whatever"])}  # fmt: skip

    def pod_spec(self, policy: str = "") -> Json:
        names = self.rng.sample(["a", "b", "c"], self.rng.randint(1, 2))
        value: Json = {
            "containers": [self.container(name) for name in names],
            "volumes": [{"name": "v", **self.source()}],
        }
        if self.rng.random() < self.chance:
            value["containers"] = []
        if policy:
            value["restartPolicy"] = self.pick([policy], ["Always", "Other"])
        else:
            self.some(0.3, lambda: self.pick(["Always", "OnFailure", "Never"], ["Maybe"]), value, "restartPolicy")
        self.some(
            0.2,
            lambda: [{**self.container("init"), **self.pick([{}, {"restartPolicy": "Always"}])}],
            value,
            "initContainers",
        )
        self.some(0.3, lambda: [self.toleration()], value, "tolerations")
        self.some(0.2, lambda: {"disk": self.pick(["ssd"], ["not ok!"])}, value, "nodeSelector")
        self.some(0.2, self.affinity, value, "affinity")
        self.some(0.2, lambda: [self.spread()], value, "topologySpreadConstraints")
        self.some(0.2, lambda: self.pick([0, 30], [-5]), value, "terminationGracePeriodSeconds")
        self.some(0.1, lambda: self.pick([60], [0, -1]), value, "activeDeadlineSeconds")
        self.some(
            0.2, lambda: self.pick(["Default", "ClusterFirst", "ClusterFirstWithHostNet"], ["Odd"]), value, "dnsPolicy"
        )
        self.some(0.2, lambda: self.pick(["volcano"], ["Bad Name"]), value, "schedulerName")
        self.some(0.1, lambda: self.pick(["host-1"], ["Bad_Host"]), value, "hostname")
        self.some(0.1, lambda: {"runAsUser": self.pick([1000], [-1])}, value, "securityContext")
        self.some(0.1, lambda: [{"name": self.pick(["x.io/g"], ["bad gate"])}], value, "schedulingGates")
        return value

    def source(self) -> Json:
        return self.pick(
            [{}, {"emptyDir": {}}, {"emptyDir": {"medium": "Memory"}}, {"hostPath": {"path": "/x"}}, {"configMap": {"name": "c"}},
             {"secret": {"secretName": "s"}}, {"persistentVolumeClaim": {"claimName": "p"}},
             {"projected": {"sources": [{"configMap": {"name": "c"}}]}},
             {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}],
            [{"hostPath": {}}, {"configMap": {}}, {"secret": {}}, {"persistentVolumeClaim": {}}],
        )  # fmt: skip

    # -- objects -------------------------------------------------------------------------------------------------------

    def metadata(self) -> Json:
        value: Json = {"name": self.pick(["x"], ["", "Bad", "-x"])}
        self.some(
            0.3,
            lambda: {self.pick(["app", "a.io/b"], ["bad key", "/x"]): self.pick(["1", ""], ["not ok!"])},
            value,
            "labels",
        )
        self.some(0.2, lambda: {self.pick(["note"], ["bad key"]): "any text"}, value, "annotations")
        self.some(0.1, lambda: [self.pick(["a.io/f"], ["f!"])], value, "finalizers")
        return value

    def template(self, policy: str = "") -> Json:
        return {"metadata": {"labels": {"app": self.pick(["web"], ["other"])}}, "spec": self.pod_spec(policy)}

    def workload(self, **spec: Any) -> Json:
        value: Json = {"selector": {"matchLabels": {"app": "web"}}, "template": self.template(), **spec}
        if self.rng.random() < self.chance:
            del value["selector"]
        return {"metadata": self.metadata(), "spec": value}

    def object(self, plural: str) -> Json:
        match plural:
            case "pods":
                return {"metadata": self.metadata(), "spec": self.pod_spec()}
            case "jobs":
                spec: Json = {"template": {"spec": self.pod_spec("Never")}}
                self.some(0.3, lambda: self.pick([0, 3], [-1]), spec, "parallelism")
                self.some(0.3, lambda: self.pick([1, 3], [-1]), spec, "completions")
                self.some(0.3, lambda: self.pick([0, 2], [-1]), spec, "backoffLimit")
                return {"metadata": self.metadata(), "spec": spec}
            case "services":
                port: Json = {"port": self.pick([80, 8080], [0, 99999])}
                self.some(0.3, lambda: self.pick(["web", 81], [0]), port, "targetPort")
                self.some(0.3, lambda: self.pick(["TCP", "UDP"], ["ICMP"]), port, "protocol")
                service: Json = {"clusterIP": "None", "ports": [port], "selector": {"app": "web"}}
                self.some(0.1, lambda: self.pick(["ClusterIP"], ["Other"]), service, "type")
                return {"metadata": self.metadata(), "spec": service}
            case "persistentvolumeclaims":
                claim: Json = {"accessModes": [self.pick(["ReadWriteOnce", "ReadOnlyMany"], ["Any"])],
                               "resources": {"requests": {"storage": self.pick(["1Gi", "500M"], ["0", "-1"])}}}  # fmt: skip
                return {"metadata": self.metadata(), "spec": claim}
            case "deployments":
                return self.workload(
                    replicas=self.pick([0, 2], [-1]), strategy=self.pick([{}, {"type": "Recreate"}], [{"type": "Odd"}])
                )
            case "statefulsets":
                return self.workload(replicas=self.pick([0, 2], [-1]), serviceName="s")
            case "replicasets":
                return self.workload(replicas=self.pick([0, 2], [-1]))
        assert plural == "daemonsets", plural
        return self.workload()


PATHS = {
    "pods": "/api/v1/namespaces/{}/pods",
    "services": "/api/v1/namespaces/{}/services",
    "persistentvolumeclaims": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "deployments": "/apis/apps/v1/namespaces/{}/deployments",
    "statefulsets": "/apis/apps/v1/namespaces/{}/statefulsets",
    "replicasets": "/apis/apps/v1/namespaces/{}/replicasets",
    "daemonsets": "/apis/apps/v1/namespaces/{}/daemonsets",
    "jobs": "/apis/batch/v1/namespaces/{}/jobs",
}
