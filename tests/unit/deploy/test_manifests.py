"""The shipped manifests say what our own readers understand, and their parts fit together."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.manifests import manifest

from pumice.cli.main import load
from pumice.devices.nvidia_vgpu.mig_catalogue import Catalogue, builtin_geometries
from pumice.model.hardware import preset, preset_names
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.node_config import parse_node_config, parse_npu_node_config
from pumice.wire.npu_config import shipped
from pumice.wire.our_devices import CLAIM_DRIVERS
from pumice.wire.scheduler_conf import parse_scheduler_conf

FOLDER = Path(str(files("pumice"))) / "manifests"
FILES = sorted(path.name for path in FOLDER.glob("*.yml"))

PRIVILEGED = {"ascend-device-plugin.yml", "ascend-mindcluster-plugin.yml", "pumice-dra-driver-npu.yml"}
"""Ascend's driver lets nobody else destroy a slice."""


MORE = {"volcano-vgpu-device-plugin-mig.yml": {"add": ["SYS_ADMIN"]}}
"""NVIDIA's lets nobody else cut a card."""


def the(name: str, kind: str, called: str) -> dict[str, Any]:
    (found,) = [o for o in manifest(name) if o["kind"] == kind and o["metadata"]["name"] == called]
    return found


def workloads() -> list[Any]:
    found = []
    for name in FILES:
        for obj in manifest(name):
            if obj["kind"] in ("DaemonSet", "Deployment"):
                spec = obj["spec"]["template"]["spec"]
                found += [pytest.param(name, spec, c, id=f"{name}/{c['name']}") for c in spec["containers"]]
    return found


@pytest.mark.parametrize(("name", "spec", "container"), workloads())
def test_every_container_is_ours_and_its_flags_exist(name, spec, container):
    assert re.fullmatch(r"pumice/pumice:\d+\.\d+\.\d+", container["image"])
    if name in PRIVILEGED:
        assert container["securityContext"] == {"privileged": True}
    else:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], **MORE.get(name, {})}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert {probe["httpGet"]["port"] for probe in (container["readinessProbe"], container["livenessProbe"])} <= {
        port["name"] for port in container["ports"]}  # fmt: skip
    assert container["resources"]["requests"]
    assert name == "volcano.yml" or container["resources"]["limits"].keys() == {"memory"}, "those two grow with the cluster"
    if name == "pumice-web.yml":
        assert "priorityClassName" not in spec, "pods that people look at go before the page"
    else:
        assert spec["priorityClassName"].startswith("system-")
    command, *rest = container["args"]
    meant = load(command).build()
    if rest and not rest[0].startswith("-"):
        meant = meant.below[rest.pop(0)]
    known = {name for option in meant.options for name in (*option.names, *option.off)}
    assert {word.split("=")[0] for word in rest} <= known
    mounts = {mount["name"] for mount in container.get("volumeMounts", [])}
    assert mounts <= {volume["name"] for volume in spec.get("volumes", [])}


@pytest.mark.parametrize("name", FILES)
def test_every_account_role_and_binding_fits_together(name):
    seen = {(o["kind"], o["metadata"]["name"]) for o in manifest(name)}
    assert len(seen) == len(manifest(name)), "an object is there twice"
    for obj in manifest(name):
        if obj["kind"].endswith("AdmissionPolicyBinding"):
            assert (obj["kind"].removesuffix("Binding"), obj["spec"]["policyName"]) in seen
        elif obj["kind"].endswith("Binding"):
            assert (obj["roleRef"]["kind"], obj["roleRef"]["name"]) in seen
            accounts = {("ServiceAccount", s["name"]) for s in obj["subjects"]}
            of_volcano = {("ServiceAccount", name) for name in ("volcano-scheduler", "volcano-controllers")}
            assert accounts <= seen | of_volcano, "of volcano.yml"
        if obj["kind"].endswith("Role"):
            for rule in obj["rules"]:
                assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_the_device_configuration_is_understood_without_a_warning():
    data = the("volcano-vgpu-device-plugin.yml", "ConfigMap", names.DEVICE_CONFIGMAP)["data"]
    config = parse_device_config(data[names.DEVICE_CONFIG_KEY])
    assert config.warnings == ()
    plain = NvidiaConfig(known_mig_geometries=config.nvidia.known_mig_geometries)
    assert config.nvidia == plain, "the published values are the defaults"
    node = the("volcano-vgpu-device-plugin.yml", "ConfigMap", "volcano-vgpu-node-config")["data"]["config.json"]
    assert parse_node_config(node).warnings == ()


def test_the_chips_of_the_npu_configmap_are_those_that_are_known_without_it():
    found = the("ascend-device-configmap.yml", "ConfigMap", names.NPU_CONFIGMAP)
    assert found["metadata"]["namespace"] == names.DEVICE_CONFIG_NAMESPACE
    config = parse_device_config(found["data"][names.DEVICE_CONFIG_KEY])
    assert (config.warnings, config.vnpus) == ((), shipped())


def test_npus_are_served_on_labelled_nodes_and_what_single_nodes_do_otherwise_is_read():
    spec = the("ascend-device-plugin.yml", "DaemonSet", "hami-ascend-device-plugin")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"ascend": "on"}
    (container,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert f"--node_config_file={mounts['node-config']}/node-config.yaml" in container["args"]
    text = the("ascend-device-plugin.yml", "ConfigMap", "hami-device-node-config")["data"]["node-config.yaml"]
    assert parse_npu_node_config(text, "any") == (None, ())


@pytest.mark.parametrize("key", [key for key in preset_names() if preset(key).mig])
def test_every_card_with_mig_finds_its_geometry_in_the_manifest_even_by_upstreams_rule(key):
    data = the("volcano-vgpu-device-plugin.yml", "ConfigMap", names.DEVICE_CONFIGMAP)["data"]
    config = parse_device_config(data[names.DEVICE_CONFIG_KEY]).nvidia
    card_type = f"NVIDIA-{preset(key).name}"
    wanted = builtin_geometries(card_type)
    assert wanted is not None
    first = next(entry for entry in config.known_mig_geometries if any(model in card_type for model in entry.models))
    assert first.groups == wanted.groups
    assert Catalogue(config, builtin=False).of(card_type) is not None


def test_the_scheduler_configuration_is_the_guides():
    data = the("volcano.yml", "ConfigMap", names.SCHEDULER_CONFIGMAP)["data"]
    conf = parse_scheduler_conf(data[names.SCHEDULER_CONF_KEY])
    plugin = conf.plugin("deviceshare")
    assert plugin is not None
    assert plugin.arguments == {"deviceshare.VGPUEnable": True, "deviceshare.SchedulePolicy": "lookahead"}


def test_the_plugin_that_may_cut_runs_where_the_other_does_not_and_is_else_the_same():
    plain = the("volcano-vgpu-device-plugin.yml", "DaemonSet", "volcano-device-plugin")["spec"]["template"]["spec"]
    cutting = the("volcano-vgpu-device-plugin-mig.yml", "DaemonSet", "volcano-device-plugin-mig")["spec"]["template"]["spec"]
    (label,) = cutting["nodeSelector"].items()
    terms = plain["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": label[0], "operator": "NotIn", "values": [label[1]]}]}]
    own = {"containers", "serviceAccountName", "affinity", "nodeSelector"}
    assert {k: v for k, v in plain.items() if k not in own} == {k: v for k, v in cutting.items() if k not in own}
    (one,), (other,) = plain["containers"], cutting["containers"]
    added = [entry for entry in other["env"] if entry not in one["env"]]
    assert added == [{"name": "NVIDIA_MIG_CONFIG_DEVICES", "value": "all"}]
    own = {"env", "securityContext"}
    assert {k: v for k, v in one.items() if k not in own} == {k: v for k, v in other.items() if k not in own}


def test_the_plugin_that_may_cut_has_no_more_rights_in_the_cluster_than_the_one_that_may_not():
    def rights(name: str, role: str) -> set[tuple[str, str]]:
        rules = the(name, "ClusterRole", role)["rules"]
        return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}

    cuts = rights("volcano-vgpu-device-plugin-mig.yml", "volcano-device-plugin-mig")
    assert cuts == rights("volcano-vgpu-device-plugin.yml", "volcano-device-plugin")


@pytest.mark.parametrize("policy", ["own-node.yml", "reserved-annotations.yml"])
def test_policies_name_the_accounts_of_the_plugins(policy):
    accounts = {o["metadata"]["name"] for name in FILES if "-plugin" in name for o in manifest(name)
                if o["kind"] == "ServiceAccount" and "monitor" not in o["metadata"]["name"]}  # fmt: skip
    text = (FOLDER / policy).read_text("utf-8")
    named = {account for account in accounts if f"'system:serviceaccount:kube-system:{account}'" in text}
    assert named == accounts


def test_each_driver_of_claims_has_its_manifest_with_a_class_of_its_name_and_may_write_its_slices():
    for driver in set(CLAIM_DRIVERS.values()):
        assert the(Path(driver.manifest).name, "DeviceClass", driver.names[0])
    (text,) = re.findall(r"variables\.its\.driver in \[(.*)\]", (FOLDER / "own-node.yml").read_text("utf-8"))
    assert sorted(text.replace("'", "").split(", ")) == sorted(CLAIM_DRIVERS)


def test_the_examples_have_the_classes_of_the_drivers():
    files = dict.fromkeys(Path(driver.manifest).name for driver in CLAIM_DRIVERS.values())
    shipped = [obj for name in files for obj in manifest(name) if obj["kind"] == "DeviceClass"]
    classes = Path(__file__).parents[3] / "examples/claims/classes.yaml"
    assert list(yaml.safe_load_all(classes.read_text("utf-8"))) == shipped


def test_the_monitor_is_let_near_neither_pods_nor_the_kubelet_and_mig_rights_are_nobodys_until_they_are_given():
    monitor = the("volcano-vgpu-device-plugin.yml", "DaemonSet", "volcano-vgpu-monitor")["spec"]["template"]["spec"]
    assert monitor["hostPID"] is True  # drivers name processes by the host's numbers
    mounts = [volume["hostPath"]["path"] for volume in monitor["volumes"]]
    assert mounts == [f"/usr/local/vgpu/vgpu/{name}" for name in ("containers", "limits", "claims", "claim-limits")]
    plugin = the("volcano-vgpu-device-plugin.yml", "DaemonSet", "volcano-device-plugin")["spec"]["template"]["spec"]
    assert "hostPID" not in plugin
    text = (FOLDER / "volcano-vgpu-device-plugin.yml").read_text("utf-8")
    assert "NVIDIA_MIG_CONFIG_DEVICES" not in text
    bound = [o["roleRef"]["name"] for o in manifest("volcano-vgpu-device-plugin.yml") if o["kind"] == "ClusterRoleBinding"]
    assert bound == ["volcano-device-plugin", "volcano-vgpu-monitor"]
