"""Checks of the configurations of scheduler and plugins: present, valid, and consistent with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.apps.doctor.cluster.facts import ClusterFacts, PluginPod, unread
from pumice.devices.lint import EMPTY_DEVICES, is_empty, lint_files
from pumice.devices.registry import SWITCHES, settings_from
from pumice.devices.settings import Settings
from pumice.model.errors import BadInput
from pumice.model.refusal import Refusal
from pumice.node.findings import ConfigText, Finding, State
from pumice.scheduler.plugins.deviceshare import device_arguments
from pumice.wire import names
from pumice.wire.node_config import parse_node_config, parse_npu_node_config
from pumice.wire.our_devices import CARDS
from pumice.wire.programs import GPU_PRESENT, Maker, Role
from pumice.wire.scheduler_conf import parse_scheduler_conf

BAD, WARNING = State.BAD, State.WARNING


def scheduler_config(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "configmaps")
    conf = facts.scheduler_conf
    if conf is None:
        return
    if conf.text is None:
        if facts.of(Role.SCHEDULER, Maker.OURS):
            yield Finding(BAD, f"there is no {names.SCHEDULER_CONF_KEY} in ConfigMap {conf.where}: the scheduler places nothing",
                          "kubectl create -f deploy/manifests/volcano.yml")  # fmt: skip
        return
    space, _, name = conf.where.partition("/")
    kept = "; the last good one stays" if facts.last_good else "; a scheduler that starts now places nothing"
    for found in lint_files({names.SCHEDULER_CONF_KEY: conf.text}):
        text = f"ConfigMap {conf.where}: {found}{kept if found.error else ''}"
        yield Finding(BAD if found.error else WARNING, text, f"kubectl -n {space} edit configmap {name}")


def device_config(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "configmaps")
    for config in facts.device_configs:
        space, _, name = config.where.partition("/")
        mend = f"kubectl -n {space} edit configmap {name}"
        if name not in (names.NODE_CONFIGMAP, names.NPU_NODE_CONFIGMAP) and (why := _says_nothing(config.text)):
            yield Finding(BAD, f"ConfigMap {config.where}: {why}; {EMPTY_DEVICES}",
                          f"kubectl -n {space} delete configmap {name}: where there is none the defaults count")  # fmt: skip
            continue
        for error, text in _amiss(name, config.text or ""):
            kept = "; plugins that run keep the last good one" if error else ""
            yield Finding(BAD if error else WARNING, f"ConfigMap {config.where}: {text}{kept}", mend)


def _says_nothing(text: str | None) -> str:
    if text is None:
        return f"it has no key {names.DEVICE_CONFIG_KEY}"
    return "it is empty" if is_empty(text) else ""


def _amiss(name: str, text: str) -> Iterator[tuple[bool, str]]:
    """(whether it makes all of it unusable, what)"""
    try:
        if name == names.NODE_CONFIGMAP:
            yield from ((False, warning) for warning in parse_node_config(text).warnings)
        elif name == names.NPU_NODE_CONFIGMAP:
            parse_npu_node_config(text, "")
        else:
            yield from ((found.error, str(found)) for found in lint_files({names.DEVICE_CONFIG_KEY: text}))
    except BadInput as error:
        yield True, str(error)


def modes(facts: ClusterFacts) -> Iterator[Finding]:
    """Each way of sharing is switched on where its plugin runs, and has its plugin where it is switched on (Volcano
    pkg/scheduler/api/devices/ascend/hami)."""
    settings = _settings(facts.scheduler_conf)
    if settings is None or not facts.of(Role.SCHEDULER):
        return
    served = {plugin.program.resource for plugin in facts.plugins}
    for resource, switch in ((switch.resource, switch.key) for switch in SWITCHES):
        on = switch in settings.on
        if resource in served and not on:
            yield Finding(BAD, f"plugins serve {resource}, and the scheduler's {switch} is not true: no pod gets any",
                          f"set {switch}: true under the arguments of deviceshare in ConfigMap {_where(facts)}")  # fmt: skip
        elif on and resource not in served and "pods" not in facts.unread:
            yield Finding(WARNING, f"{switch} is true, and no plugin serves {resource}",
                          "apply the plugin's manifest, or take the switch out")  # fmt: skip


def _settings(conf: ConfigText | None) -> Settings | None:
    """None where the configuration cannot be read; that has a finding of its own."""
    if conf is None or conf.text is None:
        return None
    try:
        arguments = device_arguments(parse_scheduler_conf(conf.text))
    except BadInput:
        return None
    settings = settings_from(arguments) if arguments is not None else Settings()
    return None if isinstance(settings, Refusal) else settings


def _where(facts: ClusterFacts) -> str:
    return facts.scheduler_conf.where if facts.scheduler_conf is not None else names.SCHEDULER_CONFIGMAP


# -- Node by node -----------------------------------------------------------------------------------------------------

# Does a plugin serve the devices that are there, and does it say anything?


LOOK = "run `pumice doctor node` there"


def runtime_classes(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "runtimeclasses")
    if "runtimeclasses" in facts.unread:
        return
    for one in facts.workloads:
        if one.runtime_class and one.runtime_class not in facts.runtime_classes:
            yield Finding(BAD, f"{one} names the RuntimeClass {one.runtime_class}, which is not there: its pods are refused",
                          f"make the RuntimeClass (handler: {one.runtime_class}), or take the name out where the runtime is the "
                          "default one")  # fmt: skip


def nodes(facts: ClusterFacts) -> Iterator[Finding]:
    yield from unread(facts, "nodes", "pods")
    if "pods" in facts.unread:
        return
    there: dict[str, list[PluginPod]] = {}
    for plugin in facts.plugins:
        there.setdefault(plugin.node, []).append(plugin)
    for node in facts.nodes:
        yield from _node(node, there.get(node["metadata"]["name"], []))


def _node(node: Mapping[str, Any], plugins: list[PluginPod]) -> Iterator[Finding]:
    meta, status = node["metadata"], node.get("status") or {}
    notes, offered = meta.get("annotations") or {}, status.get("allocatable") or {}
    name = meta["name"]
    for plugin in plugins:
        if not plugin.ready:
            text = f"node {name}: {plugin.program} ({plugin.key}) is not ready: {plugin.why or 'its probe fails'}"
            why = "most often it meets no driver, because the runtime that brings it is not the default one"
            yield Finding(BAD, f"{text}; {why}", f"{LOOK}, and look at the log of {plugin.key}")
        elif plugin.program.resource in (names.VGPU_NUMBER, names.GPU_NUMBER, names.GPU_MEMORY):
            yield from _silent(name, plugin, notes, offered)
    cards = [plugin for plugin in plugins if plugin.program.devices == CARDS]
    if not cards and notes.get(names.NODE_VGPU_REGISTER) and str(offered.get(names.VGPU_NUMBER, "0")) == "0":
        mend = f"is the node tainted, or left out by the DaemonSet's node selector? kubectl describe node {name}"
        yield Finding(BAD, f"node {name} announces cards, and no plugin runs there: pods with shares do not start", mend)
    elif not cards and (meta.get("labels") or {}).get(GPU_PRESENT) == "true":
        yield Finding(WARNING, f"node {name} has cards by its label {GPU_PRESENT}, and no plugin runs there",
                      "does the DaemonSet tolerate the node's taints, and select it?")  # fmt: skip
    if "Deleted" in str(notes.get(names.NODE_VGPU_HANDSHAKE, "")):
        yield Finding(WARNING, f"node {name}: a scheduler has given up waiting for the plugin's handshake",
                      "restart the plugin there; a scheduler up to v1.15.0 needs --handshake auto or always")  # fmt: skip


def _silent(name: str, plugin: PluginPod, notes: Mapping[str, str], offered: Mapping[str, Any]) -> Iterator[Finding]:
    resource, who = plugin.program.resource, f"node {name}: {plugin.program} ({plugin.key})"
    announces = resource == names.VGPU_NUMBER and plugin.program.maker in (Maker.OURS, Maker.VOLCANO)
    if str(offered.get(resource, "0")) == "0":
        text = f"{who} runs, and the node offers no {resource}: it has not registered with the kubelet, or all cards are sick"
        yield Finding(BAD, text, f"{LOOK}, and look at the node's events")
    elif announces and not notes.get(names.NODE_VGPU_REGISTER):
        text = f"{who} says nothing of its cards: without {names.NODE_VGPU_REGISTER} no scheduler chooses them"
        yield Finding(BAD, text, f"look at the log of {plugin.key}: may it patch its node?")
