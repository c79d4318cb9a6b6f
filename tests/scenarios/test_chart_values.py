"""The effect of each value of the chart."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.installing import CHART, refusal, rendered
from kit.manifests import manifest

from pumice.model.errors import BadInput
from pumice.ports.cluster import Json
from pumice.wire.scheduler_conf import ACTIONS, parse_scheduler_conf

LABEL = {"team": "cards"}
LIMITS = {"limits": {"memory": "512Mi"}}
APART = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
TOLERATED = [{"key": "own", "operator": "Exists"}]
CENTRAL = {"scheduler": "volcano-scheduler", "controller": "volcano-controllers", "admission": "volcano-admission"}


class Rendering:
    def __init__(self, values: Json) -> None:
        self.objects = rendered(values)

    def __call__(self, kind: str, name: str) -> Json:
        (found,) = [obj for obj in self.objects if obj["kind"] == kind and obj["metadata"]["name"] == name]
        return found

    def names(self, kind: str) -> list[str]:
        return sorted(obj["metadata"]["name"] for obj in self.objects if obj["kind"] == kind)

    @property
    def workloads(self) -> Iterator[Json]:
        return (obj for obj in self.objects if obj["kind"] in ("Deployment", "DaemonSet"))

    def pod(self, name: str) -> Json:
        (found,) = [obj for obj in self.workloads if obj["metadata"]["name"] == name]
        return found["spec"]["template"]["spec"]

    def container(self, name: str) -> Json:
        (found,) = self.pod(name)["containers"]
        return found


@cache
def plain() -> Rendering:
    """With no values."""
    return Rendering({})


def central(**said: Any) -> Json:
    """The same of all three."""
    return {"custom": {f"{component}_{name}": value for component in CENTRAL for name, value in said.items()}}


def test_what_is_said_of_a_component_is_said_of_its_workload_alone() -> None:
    found = Rendering(central(replicas=2, extraArgs=["--log-format=json"], resources=LIMITS, affinity=APART,
                              tolerations=TOLERATED, ns={"disk": "ssd"}, labels=LABEL, podLabels={"of": "pods"},
                              sc={"fsGroup": 7}, main_csc={"runAsUser": 9}))  # fmt: skip
    for name in CENTRAL.values():
        workload, pod, container = found("Deployment", name), found.pod(name), found.container(name)
        assert workload["spec"]["replicas"] == 2
        assert workload["metadata"]["labels"]["team"] == "cards"
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert labels == workload["spec"]["selector"]["matchLabels"] | {"of": "pods"}
        assert (pod["affinity"], pod["tolerations"], pod["nodeSelector"]) == (APART, TOLERATED, {"disk": "ssd"})
        assert (pod["securityContext"], container["securityContext"]) == ({"fsGroup": 7}, {"runAsUser": 9})
        assert container["resources"] == LIMITS
        assert container["args"][-1] == "--log-format=json"
    assert "tolerations" in found.pod("volcano-device-plugin")
    assert found.pod("volcano-device-plugin")["tolerations"] != TOLERATED


def test_what_is_said_of_all_counts_where_a_component_says_nothing() -> None:
    found = Rendering({"custom": {
        "default_affinity": APART, "default_tolerations": TOLERATED, "default_ns": {"disk": "ssd"}, "default_sc": {"fsGroup": 7},
        "default_csc": {"runAsUser": 9}, "default_priorityClassName": "ours", "scheduler_sc": {"fsGroup": 8}}})  # fmt: skip
    for name in CENTRAL.values():
        pod = found.pod(name)
        assert (pod["affinity"], pod["tolerations"], pod["nodeSelector"]) == (APART, TOLERATED, {"disk": "ssd"})
        assert pod["securityContext"] == {"fsGroup": 8 if name == "volcano-scheduler" else 7}
        assert (pod["priorityClassName"], pod["containers"][0]["securityContext"]) == ("ours", {"runAsUser": 9})


def test_replicas_keep_to_different_nodes_and_one_at_a_time_is_disturbed() -> None:
    found = Rendering(central(replicas=2))
    assert found.names("PodDisruptionBudget") == sorted(CENTRAL.values())
    for name in CENTRAL.values():
        selector = found("Deployment", name)["spec"]["selector"]
        (term,) = found.pod(name)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert term["podAffinityTerm"] == {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
        assert found("PodDisruptionBudget", name)["spec"] == {"maxUnavailable": 1, "selector": selector}
    assert "--leader-elect" in found.container("volcano-scheduler")["args"]
    assert plain().names("PodDisruptionBudget") == [], "a budget of one pod would keep its node from being drained"


def test_replicas_without_an_election_are_refused() -> None:
    said = refusal({"custom": {"controller_replicas": 2, "leader_elect_enable": False}})
    assert "custom.controller_replicas of two or more want custom.leader_elect_enable" in said
    alone = Rendering({"custom": {"leader_elect_enable": False}})
    assert not [name for name in CENTRAL.values() if "--leader-elect" in alone.container(name)["args"]]


def test_components_are_left_out_with_all_that_is_theirs() -> None:
    found = Rendering({"custom": {"scheduler_enable": False, "admission_enable": False, "vap_enable": False},
                       "devicePlugin": {"enabled": False}})  # fmt: skip
    assert sorted(w["metadata"]["name"] for w in found.workloads) == ["volcano-controllers", "volcano-vgpu-monitor"]
    assert not [obj for obj in found.objects if obj["metadata"]["name"].startswith(("volcano-scheduler", "volcano-admission"))]
    assert "volcano-vgpu-device-config" in found.names("ConfigMap"), "the monitor reads it"
    found = Rendering({"custom": {"controller_enable": False}, "devicePlugin": {"monitor": {"enabled": False}}})
    names = {obj["metadata"]["name"] for obj in found.objects}
    assert not [name for name in names if name.startswith("volcano-controllers") or name == "volcano-vgpu-monitor"]


def test_one_image_serves_all() -> None:
    found = Rendering({"global": {"imagePullSecrets": [{"name": "one"}]},
                       "image": {"registry": "registry.example", "repository": "team/pumice", "tag": "1.2",
                                 "pullPolicy": "Always", "pullSecrets": ["one", "two"]},
                       "devicePlugin": {"mig": {"enabled": True}},
                       "devices": {"ascend": {"enabled": True}}})  # fmt: skip
    for workload in found.workloads:
        pod = workload["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
        assert [c["image"] for c in pod["containers"]] == ["registry.example/team/pumice:1.2"]
        assert [c["imagePullPolicy"] for c in pod["containers"]] == ["Always"]
    digest = f"sha256:{'a' * 64}"
    found = Rendering({"global": {"imageRegistry": "mirror.example"}, "image": {"registry": "there.example", "digest": digest}})
    assert {found.container(name)["image"] for name in CENTRAL.values()} == {f"mirror.example/pumice/pumice@{digest}"}
    assert "'/image/digest': 'sha256:1' does not match" in refusal({"image": {"digest": "sha256:1"}})


@pytest.mark.parametrize(("path", "texts"), [
    ("repository", ["a b", "Team/pumice", "/pumice", "pumice/", "pumice:1", "pumice@sha256:1", "a//b"]),
    ("registry", ["a b", "https://there.example", "there.example/a b", "there:port", "/"]),
    ("tag", ["1 2", ":1", "-1", "1/2", "x" * 129]),
])  # fmt: skip
def test_what_no_image_can_be_called_is_refused_by_its_value(path: str, texts: list[str]) -> None:
    for text in texts:
        assert f"'/image/{path}': '{text}' does not match" in refusal({"image": {path: text}}), text
    if path == "registry":
        assert "'/global/imageRegistry': 'a b' does not match" in refusal({"global": {"imageRegistry": "a b"}})


@pytest.mark.parametrize("image", [
    {"registry": "localhost:5000", "repository": "pumice"},
    {"registry": "[fd00::1]:5000/mirror/", "repository": "a_b/c__d/e-f.g"},
    {"registry": "10.0.0.1", "repository": "pumice/pumice", "tag": "v1.2_rc-1"}, {"repository": "there.example:443/pumice"},
])  # fmt: skip
def test_what_an_image_can_be_called_is_taken(image: Json) -> None:
    named = Rendering({"image": image}).container("volcano-scheduler")["image"]
    registry = f"{image['registry'].removesuffix('/')}/" if "registry" in image else ""
    assert named.startswith(f"{registry}{image['repository']}:{image.get('tag', '')}")


BROKEN = (
    "actions: [", "- actions", "words", "actions:", "tiers: []", "actions: [allocate]", "actions: 3", 'actions: ","',
    'actions: "enqueue, alocate"', "actions: “allocate”", "actions: allocate\ntiers:\n- plugins:\n  - name: drf\n"
    "    enableHierarchy: true\n  - name: proportion\n",
)  # fmt: skip
WHOLE = (
    "actions: allocate", f"actions: '{', '.join(sorted(ACTIONS))}'", "actions: allocate,\n", "actions: allocate\ntiers: []\n",
    "actions: allocate\ntiers:\n- plugins: [{name: drf, enableHierarchy: true}]\n- plugins: [{name: proportion}, gang]\n",
    "actions: allocate\ntiers:\n- plugins: [{name: drf, enableHierarchy: 'false'}, {name: proportion}]\n",
)  # fmt: skip


@pytest.mark.parametrize("text", [*BROKEN, *WHOLE])
def test_a_configuration_that_the_scheduler_would_refuse_is_refused_before_it_is_written(text: str) -> None:
    """It would go on with its last good one, or place nothing, and say so in its log."""
    values = {"custom": {"scheduler_config_override": text}}
    if text in WHOLE:
        parse_scheduler_conf(text)
        assert Rendering(values)("ConfigMap", "volcano-scheduler-configmap")["data"] == {"volcano-scheduler.conf": text}
        return
    with pytest.raises(BadInput):
        parse_scheduler_conf(text)
    assert "custom.scheduler_config_override" in refusal(values)


@pytest.mark.parametrize(("values", "said"), [
    ({"custom": {"controller_config_override": "a: ["}}, "custom.controller_config_override is no YAML of keys"),
    ({"device-config": {"content": "- nvidia"}}, "device-config.content is no YAML of sections"),
    ({"devicePlugin": {"nodeConfiguration": {"config": "{nodeconfig: []"}}},
     "devicePlugin.nodeConfiguration.config is no JSON of keys"),
])  # fmt: skip
def test_other_texts_that_nobody_could_read_are_refused_too(values: Json, said: str) -> None:
    assert said in refusal(values)


def test_a_scheduler_of_another_name_holds_a_lease_of_that_name() -> None:
    found = Rendering({"custom": {"scheduler_name": "cards", "scheduler_schedule_period": "100ms", "controller_worker_threads": 8,
                                  "enabled_admissions": "/jobs/mutate,/jobs/validate"}})  # fmt: skip
    for name in CENTRAL.values():
        assert "--scheduler-name=cards" in found.container(name)["args"]
    assert "--schedule-period=100ms" in found.container("volcano-scheduler")["args"]
    assert "--worker-threads=8" in found.container("volcano-controllers")["args"]
    assert "--enabled-admission=/jobs/mutate,/jobs/validate" in found.container("volcano-admission")["args"]
    rules = found("Role", "volcano-scheduler")["rules"]
    assert [rule.get("resourceNames") for rule in rules if rule["resources"] == ["leases"]] == [["cards"], None]


def test_configuration_is_written_as_it_is_given() -> None:
    conf, network, device = "actions: allocate\n", "networkTopologyDiscovery: []\n", "nvidia: {deviceSplitCount: 3}\n"
    found = Rendering({"custom": {"scheduler_config_override": conf, "controller_config_override": network},
                       "device-config": {"content": device},
                       "devicePlugin": {"nodeConfiguration": {"config": '{"nodeconfig": []}'}}})  # fmt: skip
    assert found("ConfigMap", "volcano-scheduler-configmap")["data"] == {"volcano-scheduler.conf": conf}
    assert found("ConfigMap", "volcano-controller-configmap")["data"] == {"volcano-controller.conf": network}
    assert found("ConfigMap", "volcano-vgpu-device-config")["data"] == {"device-config.yaml": device}
    assert found("ConfigMap", "volcano-vgpu-node-config")["data"] == {"config.json": '{"nodeconfig": []}'}
    found = Rendering({"devicePlugin": {"nodeConfiguration": {"externalConfigName": "mine"}}})
    assert "volcano-vgpu-node-config" not in found.names("ConfigMap")
    volumes = [v["configMap"] for v in found.pod("volcano-device-plugin")["volumes"] if "configMap" in v]
    assert volumes == [{"name": "mine"}]


def test_single_settings_of_cards_leave_the_rest_of_the_configuration() -> None:
    def settings(found: Rendering) -> Json:
        text = found("ConfigMap", "volcano-vgpu-device-config")["data"]["device-config.yaml"]
        return yaml.safe_load(text)["nvidia"]

    said = {"deviceSplitCount": 4, "deviceMemoryScaling": 1.5, "deviceCoreScaling": 2}
    assert settings(Rendering({"devicePlugin": said})) == settings(plain()) | said


def test_the_nodes_daemons_go_where_they_are_sent() -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    cards = {"nvidiaNodeSelector": {"gpu": "on"}, "tolerations": TOLERATED, "updateStrategy": rolling,
             "runtimeClassName": "nvidia-cdi", "createRuntimeClass": True, "mig": {"enabled": True},
             "priorityClassName": "ours"}  # fmt: skip
    found = Rendering({"devicePlugin": cards | {
        "extraArgs": ["--handshake=always"], "extraEnvs": {"GDRCOPY_ENABLED": True, "IMEX_CHANNEL_IDS": 3}, "resources": LIMITS,
        "podAnnotations": {"a": "b"}, "securityContext": {"privileged": True},
        "monitor": {"extraArgs": ["--legacy-metrics"], "resources": {"limits": {"memory": "99Mi"}}}}})  # fmt: skip
    for name in ("volcano-device-plugin", "volcano-device-plugin-mig", "volcano-vgpu-monitor"):
        pod, workload = found.pod(name), found("DaemonSet", name)
        own = {"pumice.io/mig": "cut"} if name.endswith("-mig") else {}
        assert (pod["nodeSelector"], pod["tolerations"]) == ({"gpu": "on"} | own, TOLERATED)
        assert (pod["priorityClassName"], pod["runtimeClassName"]) == ("ours", "nvidia-cdi")
        assert workload["spec"]["updateStrategy"] == rolling
    assert found("RuntimeClass", "nvidia-cdi")["handler"] == "nvidia-cdi"
    plugin, monitor = found.container("volcano-device-plugin"), found.container("volcano-vgpu-monitor")
    assert (plugin["resources"], monitor["resources"]) == (LIMITS, {"limits": {"memory": "99Mi"}})
    assert (plugin["args"][-1], monitor["args"][-1]) == ("--handshake=always", "--legacy-metrics")
    assert plugin["env"][-2:] == [{"name": "GDRCOPY_ENABLED", "value": "true"}, {"name": "IMEX_CHANNEL_IDS", "value": "3"}]
    assert found("DaemonSet", "volcano-device-plugin")["spec"]["template"]["metadata"]["annotations"] == {"a": "b"}
    assert plugin["securityContext"] == {"privileged": True} != monitor["securityContext"]


def test_how_cards_are_handed_out_is_said_by_the_plugins_flags_and_cdi_gets_its_folder() -> None:
    found = Rendering({"devicePlugin": {
        "deviceListStrategy": "envvar,cdi-cri", "migStrategy": "mixed", "passDeviceSpecsEnabled": True, "gdrcopyEnabled": False,
        "gdsEnabled": True, "mofedEnabled": False, "allowDisableControl": True}})  # fmt: skip
    container = found.container("volcano-device-plugin")
    added = sorted(word for word in container["args"] if word not in plain().container("volcano-device-plugin")["args"])
    assert added == ["--allow-disable-control", "--device-list-strategy=cdi-cri", "--device-list-strategy=envvar",
                     "--gds-enabled", "--mig-strategy=mixed",
                     "--no-gdrcopy-enabled", "--no-mofed-enabled", "--pass-device-specs"]  # fmt: skip
    assert {"name": "cdi", "mountPath": "/var/run/cdi"} in container["volumeMounts"]
    assert "cdi" in [volume["name"] for volume in found.pod("volcano-device-plugin")["volumes"]]
    assert "cdi" not in [volume["name"] for volume in found.pod("volcano-vgpu-monitor")["volumes"]]


@pytest.mark.parametrize(
    ("mode", "name"), [("enabled", "hami-ascend-device-plugin"), ("mindcluster", "ascend-mindcluster-plugin")]
)
def test_the_npus_plugin_goes_where_it_is_sent(mode: str, name: str) -> None:
    found = Rendering({"devices": {"ascend": {
        mode: True, "extraArgs": ["--log-level=debug"], "resources": LIMITS, "nodeSelector": {"more": "yes"},
        "tolerations": TOLERATED, "runtimeClassName": "ascend"}}})  # fmt: skip
    pod, container = found.pod(name), found.container(name)
    assert (pod["tolerations"], pod["runtimeClassName"], container["resources"]) == (TOLERATED, "ascend", LIMITS)
    assert pod["nodeSelector"]["more"] == "yes"
    assert len(pod["nodeSelector"]) == 2
    assert container["args"][-1] == "--log-level=debug"


def test_the_page_is_there_where_it_is_asked_for_and_only_its_own_port_is_reached_by_whom_it_names() -> None:
    assert "pumice-web" not in plain().names("Deployment")
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}
    found = Rendering({"web": {
        "enabled": True, "extraArgs": ["--scheduler-name=ours"], "resources": LIMITS, "nodeSelector": {"more": "yes"},
        "tolerations": TOLERATED, "priorityClassName": "ours", "from": [peer]},
        "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]}, "prometheus": {"enabled": True}})  # fmt: skip
    pod, container = found.pod("pumice-web"), found.container("pumice-web")
    assert (pod["tolerations"], pod["priorityClassName"], pod["nodeSelector"]) == (TOLERATED, "ours", {"more": "yes"})
    assert container["resources"] == LIMITS
    assert container["args"] == ["web", "--in-cluster", "--listen-address=:8080", "--scheduler-name=ours"]
    assert found("NetworkPolicy", "pumice-web")["spec"]["ingress"] == [{"ports": [{"port": "page"}], "from": [peer]}]
    assert "pumice-web" not in found.names("PodMonitor")


def classes_of(name: str) -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in manifest(name) if obj["kind"] == "DeviceClass")


def test_the_driver_of_claims_is_there_where_it_is_asked_for_and_goes_where_it_is_sent() -> None:
    assert "pumice-dra-driver" not in plain().names("DaemonSet")
    assert plain().names("DeviceClass") == []
    found = Rendering({"draDriver": {
        "enabled": True, "worlds": "both", "extraArgs": ["--log-level=debug"], "extraEnvs": {"CDI_ROOT": "/etc/cdi"},
        "resources": LIMITS, "nodeSelector": {"more": "yes"}, "tolerations": TOLERATED, "runtimeClassName": "nvidia",
        "updateStrategy": {"type": "OnDelete"}, "priorityClassName": "ours"}})  # fmt: skip
    pod, container = found.pod("pumice-dra-driver"), found.container("pumice-dra-driver")
    assert (pod["tolerations"], pod["runtimeClassName"], pod["priorityClassName"]) == (TOLERATED, "nvidia", "ours")
    assert pod["nodeSelector"] == {"pumice.io/claims": "on", "more": "yes"}
    assert container["resources"] == LIMITS
    assert container["args"][-2:] == ["--worlds=both", "--log-level=debug"]
    assert container["env"][-1] == {"name": "CDI_ROOT", "value": "/etc/cdi"}
    assert found("DaemonSet", "pumice-dra-driver")["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert found.names("DeviceClass") == classes_of("pumice-dra-driver.yml")
    npus = Rendering({"draDriver": {"npus": True, "resources": LIMITS, "nodeSelector": {"more": "yes"}}})
    assert set(npus.names("DaemonSet")) - set(plain().names("DaemonSet")) == {"pumice-dra-driver-npu"}
    assert npus.pod("pumice-dra-driver-npu")["nodeSelector"] == {"pumice.io/claims": "on", "ascend": "on", "more": "yes"}
    assert npus.container("pumice-dra-driver-npu")["resources"] == LIMITS
    assert npus.names("DeviceClass") == classes_of("pumice-dra-driver-npu.yml")
    cutting = Rendering({"draDriver": {"enabled": True, "cutMig": True}}).container("pumice-dra-driver")
    assert cutting["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert {"name": "NVIDIA_MIG_CONFIG_DEVICES", "value": "all"} in cutting["env"]
    assert "add" not in container["securityContext"]["capabilities"]
    assert "does not serve resource.k8s.io/v1" in refusal({"draDriver": {"enabled": True}}, "--kube-version=1.33.9")


def test_shares_become_claims_where_that_is_asked_for_and_the_controller_gets_one_right_for_it() -> None:
    def told(found: Rendering) -> list[bool]:
        return ["--share-claims" in found.container(name)["args"] for name in CENTRAL.values()]

    assert told(Rendering({"draDriver": {"enabled": True}})) == [False, False, False]
    found = Rendering({"draDriver": {"enabled": True, "shareClaims": True}})
    assert told(found) == [False, True, True]
    more = set(found.names("ClusterRole")) - set(Rendering({"draDriver": {"enabled": True}}).names("ClusterRole"))
    assert more == {"volcano-controllers-share-claims"}
    for missing in ({"draDriver": {"shareClaims": True}},
                    {"draDriver": {"enabled": True, "shareClaims": True}, "custom": {"admission_enable": False}}):
        assert "draDriver.shareClaims wants draDriver.enabled" in refusal(missing)


def test_only_the_served_ports_are_reachable_where_that_is_asked_for() -> None:
    assert plain().names("NetworkPolicy") == []
    readers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    found = Rendering({"networkPolicy": {"enabled": True, "metricsFrom": readers}})
    assert found.names("NetworkPolicy") == sorted(workload["metadata"]["name"] for workload in found.workloads)
    for workload in found.workloads:
        policy = found("NetworkPolicy", workload["metadata"]["name"])
        assert policy["metadata"]["namespace"] == workload["metadata"]["namespace"]
        assert policy["spec"]["podSelector"] == workload["spec"]["selector"]
        ports = {port["name"] for port in workload["spec"]["template"]["spec"]["containers"][0]["ports"]}
        assert {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]} == ports
    requested, watched = found("NetworkPolicy", "volcano-admission")["spec"]["ingress"]
    assert requested == {"ports": [{"port": "asks"}]}, "the API server has no address that a policy could name"
    assert watched["from"] == readers


def test_prometheus_is_told_of_every_daemon_where_that_is_asked_for() -> None:
    assert plain().names("PodMonitor") == []
    found = Rendering({"prometheus": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}}})
    assert found.names("PodMonitor") == sorted(workload["metadata"]["name"] for workload in found.workloads)
    for workload in found.workloads:
        monitor = found("PodMonitor", workload["metadata"]["name"])
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert monitor["spec"]["selector"] == workload["spec"]["selector"]
        ports = {port["name"] for port in workload["spec"]["template"]["spec"]["containers"][0]["ports"]} - {"asks"}
        assert [{end["port"]} for end in monitor["spec"]["podMetricsEndpoints"]] == [ports]
        assert monitor["spec"]["podMetricsEndpoints"][0]["interval"] == "15s"


def test_rules_and_dashboards_are_those_of_the_files() -> None:
    folder = CHART.parent / "observability"
    assert plain().names("PrometheusRule") == []
    found = Rendering({"prometheus": {"rules": True, "dashboards": True, "labels": {"release": "prometheus"}}})
    assert found("PrometheusRule", "pumice")["spec"] == yaml.safe_load((folder / "rules.yml").read_text("utf-8"))
    assert found("PrometheusRule", "pumice")["metadata"]["labels"] == {"release": "prometheus"}
    boards = [obj for obj in found.objects if obj["metadata"].get("labels", {}).get("grafana_dashboard") == "1"]
    assert {name: text for board in boards for name, text in board["data"].items()} == {
        path.name: path.read_text("utf-8") for path in (folder / "dashboards").iterdir()}  # fmt: skip


def test_podmonitors_name_jobs_and_nodes_as_the_configuration_without_an_operator_does() -> None:
    """Prometheus' operator calls a job NAMESPACE/NAME; the rules ask for jobs by such names, and join by the node."""
    text = (CHART.parent / "observability" / "rules.yml").read_text("utf-8")
    requested = re.findall(r'job=~"([^"]+)"', text)
    found = Rendering({"prometheus": {"enabled": True}})
    jobs = [f"{o['metadata']['namespace']}/{o['metadata']['name']}" for o in found.objects if o["kind"] == "PodMonitor"]
    assert [pattern for pattern in requested if not any(re.fullmatch(pattern, job) for job in jobs)] == []
    end = found("PodMonitor", "volcano-vgpu-monitor")["spec"]["podMetricsEndpoints"][0]
    assert end["honorLabels"] is True
    assert end["relabelings"] == [{"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}]


def test_labels_for_all_are_on_all_and_change_no_selector() -> None:
    found = Rendering({"custom": {"common_labels": LABEL | {"app": "other"}, "controller_config_override": "{}"},
                       "networkPolicy": {"enabled": True}, "devicePlugin": {"createRuntimeClass": True},
                       "prometheus": {"enabled": True, "rules": True, "dashboards": True}})  # fmt: skip
    assert [o for o in found.objects if o["metadata"]["labels"]["team"] != "cards"] == []
    for workload in found.workloads:
        spec = workload["spec"]
        assert spec["selector"] == plain()(workload["kind"], workload["metadata"]["name"])["spec"]["selector"]
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert found.names("RuntimeClass") == ["nvidia"]


def test_policies_are_switched_off_one_by_one_and_leave_the_namespaces_out_that_are_named() -> None:
    reserved = ("ValidatingAdmissionPolicyBinding", "volcano-reserved-annotations")
    limits, void = (reserved[0], "volcano-tenant-limits"), ("MutatingAdmissionPolicyBinding", "volcano-tenant-void")
    found = Rendering({"custom": {"policy_excluded_namespaces": ["monitoring", "storage"]}})
    for one in (limits, void):
        before, after = (r(*one)["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] for r in (plain(), found))
        assert after == [{**before[0], "values": [*before[0]["values"], "monitoring", "storage"]}, *before[1:]]
    switches = {"vap_enable": (reserved, limits), "map_enable": (void,), "tenant_policies_enable": (limits, void)}
    for switch, off in switches.items():
        found = Rendering({"custom": {switch: False}})
        assert [one for one in (reserved, limits, void) if one[1] not in found.names(one[0])] == list(off)


@pytest.mark.parametrize(("values", "words", "said"), [
    ({"devices": {"ascend": {"enabled": True, "mindcluster": True}}}, [], "serves NPUs in one of these ways, not in both"),
    ({"devicePlugin": {"sharing": "gpushare", "mig": {"enabled": True}}}, [], "devicePlugin.mig.enabled goes with"),
    ({"devicePlugin": {"sharing": "gpushare", "deviceSplitCount": 3, "gdsEnabled": False}}, [],
     "devicePlugin.deviceSplitCount, devicePlugin.gdsEnabled goes with devicePlugin.sharing: vgpu alone"),
    ({"devicePlugin": {"sharing": "gpushare", "nodeConfiguration": {"config": "{}"}}}, [],
     "devicePlugin.nodeConfiguration goes with"),
    *(({"custom": {f"{component}_podLabels": {"app": "mine"}}}, [],
       f"the pods of Deployment {name} are found by their label app: {name.removesuffix('s')}, and a value in podLabels")
      for component, name in CENTRAL.items()),
    ({"device-config": {"content": "nvidia: ["}, "devicePlugin": {"deviceSplitCount": 3}}, [],
     "device-config.content is no YAML of sections"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(values: Json, words: list[str], said: str) -> None:
    assert said in refusal(values, *words)


OF_EACH = ("replicas", "extraArgs", "resources", "affinity", "tolerations", "ns", "labels", "podLabels", "sc", "main_csc")


def test_these_tests_speak_of_every_value() -> None:
    text, values = Path(__file__).read_text("utf-8"), yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    each = {f"{component}_{name}" for component in CENTRAL for name in OF_EACH}
    assert {name for name in names(values) if f'"{name}"' not in text} - each == set()


def names(values: Json) -> set[str]:
    return {n for key, value in values.items() for n in (names(value) if isinstance(value, dict) and value else {key})}


def test_shards_are_schedulers_with_a_lease_each_that_divide_nodes_and_jobs() -> None:
    found = Rendering({"custom": {"scheduler_shards": ["a", "b"], "scheduler_replicas": 2, "scheduler_name": "team"}})
    assert "volcano-scheduler" not in found.names("Deployment")
    for shard in ("a", "b"):
        workload, container = found("Deployment", f"volcano-scheduler-{shard}"), found.container(f"volcano-scheduler-{shard}")
        assert workload["spec"]["replicas"] == 2
        assert workload["spec"]["selector"]["matchLabels"] == {"app": "volcano-scheduler", "shard": shard}
        assert workload["spec"]["template"]["metadata"]["labels"] == {"app": "volcano-scheduler", "shard": shard}
        assert container["args"][-3:] == [
            "--scheduler-sharding-mode=hard", f"--scheduler-sharding-name={shard}", "--scheduler-sharding-peers=a,b"]  # fmt: skip
    leases = [rule for rule in found("Role", "volcano-scheduler")["rules"] if "leases" in rule["resources"]]
    assert [rule["resourceNames"] for rule in leases if "update" in rule["verbs"]] == [["team-a", "team-b"]]
    assert "Service" in {obj["kind"] for obj in found.objects if obj["metadata"]["name"] == "volcano-scheduler-service"}
    kept = {"scheduler_shards": ["a", "b"], "scheduler_journal_mib": 64, "scheduler_journal_volume": {"emptyDir": {}}}
    assert "several custom.scheduler_shards" in refusal({"custom": kept})
    assert "scheduler_shards" in refusal({"custom": {"scheduler_shards": ["A b"]}})



def test_a_journal_is_kept_where_its_size_is_said_in_a_volume_of_its_own_or_in_a_given_one() -> None:
    found = Rendering({"custom": {"scheduler_journal_mib": 512}})
    assert {"--journal-dir=/var/lib/pumice/journal", "--journal-size=512MiB"} <= set(found.container("volcano-scheduler")["args"])
    assert {"name": "journal", "mountPath": "/var/lib/pumice/journal"} in found.container("volcano-scheduler")["volumeMounts"]
    assert {"name": "journal", "emptyDir": {"sizeLimit": "576Mi"}} in found.pod("volcano-scheduler")["volumes"]
    claim = {"persistentVolumeClaim": {"claimName": "kept"}}
    kept = {"scheduler_journal_mib": 512, "scheduler_journal_volume": claim}
    assert {"name": "journal", **claim} in Rendering({"custom": kept}).pod("volcano-scheduler")["volumes"]
    assert "one scheduler at a time" in refusal({"custom": {**kept, "scheduler_replicas": 2}})
    assert "scheduler_journal_mib" in refusal({"custom": {"scheduler_journal_mib": 4}})
    assert not any("journal" in word for word in plain().container("volcano-scheduler")["args"])
