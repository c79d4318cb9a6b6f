"""Node by node: does a plugin serve the devices that are there, and does it say anything?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pumice.apps.doctor.cluster.facts import ClusterFacts, PluginPod, unread
from pumice.node.findings import Finding, State
from pumice.wire import names
from pumice.wire.programs import CARDS, GPU_PRESENT, Maker

BAD, WARNING = State.BAD, State.WARNING
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
