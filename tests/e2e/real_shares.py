"""Pods with shares of cards on a real kubelet, bound in any order by hand: what each of their containers starts with."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from kit import real_kubelet

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import ApiError, Json
from pumice.wire import limits_page, names, variables
from pumice.wire.kinds import PODS
from pumice.wire.nvidia_vgpu import parse_pod_devices

SAY = f"env; base64 {limits_page.PATH} | tr -d '\\n'; echo; echo END; sleep 100000"
THE_KUBELETS_OWN = ("SysctlForbidden", "no healthy devices", "unregistered device", "unknown Device Plugin", "OutOf",
                    "NodeAffinity", "Predicate", "ContainerStatusUnknown", "code = Unavailable", "code = Canceled",
                    "failed to start shim: start failed: : signal: killed", "context canceled")  # fmt: skip
"""Reasons for which the kubelet and the runtime refuse pods without our having a say. Two where the plugin was killed amid a
call; the last two where the kubelet was: containerd gives up what a caller that went has asked for, and a container that was
never to start again (``restartPolicy: Never``) then ends its pod, with a reason of its own and none of the pod's."""


BY_GUESS = ("NVIDIA_VISIBLE_DEVICES is",)
"""Of the reasons for which a pod may be refused where calls are guessed: the answer that it was given opens another card."""
UNHEARD = ("no pod of this node waits", "could not be written", "does not say whether", "it seems to be gone")
"""The same while the API server does not answer: who is asked for cannot be guessed, or what he is given not be written."""


@dataclass
class Burst:
    """The pods of one round on node ``name`` whose cards are ``cards``."""

    kube: KubeClient
    node: real_kubelet.RealNode
    cards: Sequence[str]
    rng: random.Random
    by_name: bool
    pods: dict[str, Json] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    async def make(self, prefix: str, count: int) -> None:
        """Pods of one size and of several, with one container and two, an init container, and one that the kubelet rejects."""
        size = self.rng.choice((500, 500, None))
        for number in range(count):
            memory = size or self.rng.choice((300, 500, 800, 1200))
            parts = [[(self.rng.choice(self.cards), memory)] for _ in range(self.rng.choice((1, 1, 2)))]
            name = f"{self.rng.choice('abcxyz')}-{prefix}-{number}"
            spec: Json = {"schedulerName": "by-hand", "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
                          "containers": [_box(f"c{at}", part, SAY) for at, part in enumerate(parts)]}  # fmt: skip
            if self.rng.random() < 0.25:
                spec["initContainers"] = [_box("i", parts[0], SAY.partition("; sleep")[0])]
            if self.by_name and self.rng.random() < 0.2:  # a tenant's word: by name ours wins
                spec["containers"][0]["env"] = [{"name": variables.memory_limit_of(0), "value": "0"},
                                                {"name": variables.NVIDIA_VISIBLE_DEVICES, "value": "all"}]  # fmt: skip
            if self.rng.random() < 0.1:
                spec["securityContext"] = {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}  # unsafe
            text = ";".join("".join(f"{card},NVIDIA,{size},5:" for card, size in part) for part in parts)
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
            made = await self.kube.create(PODS, body, "default")
            made["metadata"].setdefault("annotations", {})[names.VGPU_IDS] = text
            self.pods[name] = made

    async def bind(self, between: Callable[[], Any]) -> None:
        """In an order of their own, with ``between`` called now and then; some are deleted at once."""
        order = sorted(self.pods)
        self.rng.shuffle(order)
        for name in order:
            meta = self.pods[name]["metadata"]
            now, text = str(int(time.time())), meta["annotations"][names.VGPU_IDS]
            notes = {names.VGPU_NODE: self.node.name, names.VGPU_TIME: now, names.VGPU_IDS: text, names.DEVICES_TO_ALLOCATE: text,
                     names.BIND_PHASE: "allocating", names.BIND_TIME: now}  # fmt: skip
            body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": meta["uid"], "annotations": notes},
                    "target": {"kind": "Node", "name": self.node.name}}  # fmt: skip
            await self.kube.bind("default", name, msgspec.json.encode(body))
            if self.rng.random() < 0.08:
                await self.delete(name)
            if self.rng.random() < 0.1:
                between()

    async def delete_some(self) -> None:
        """Up to three of them at moments of their own, whatever they are about."""
        for _ in range(self.rng.choice((0, 0, 1, 3))):
            await asyncio.sleep(self.rng.uniform(0, 2.5))
            if left := sorted(self.pods.keys() - self.gone):
                await self.delete(self.rng.choice(left))

    async def delete(self, name: str) -> None:
        self.gone.add(name)
        with contextlib.suppress(ApiError):
            await self.kube.delete(PODS, name, "default", grace=self.rng.choice((None, 0)))

    async def phases(self) -> dict[str, Json]:
        listed = (await self.kube.list(PODS, "default"))["items"]
        return {pod["metadata"]["name"]: pod["status"] for pod in listed if pod["metadata"]["name"] in self.pods}

    async def why_refused(self, name: str) -> str:
        """Return what the plugin wrote on the pod that it ended, or the kubelet says of one that was not admitted."""
        pod = await self.kube.get(PODS, name, "default")
        return pod["metadata"]["annotations"].get(names.DEVICES_REFUSED, "") or str(pod["status"].get("message", ""))

    def wrong(self, name: str) -> list[str]:
        """Return what the containers of this pod started with that is not theirs; every container that has told is looked at."""
        meta, found = self.pods[name]["metadata"], []
        parts = parse_pod_devices(meta["annotations"][names.VGPU_IDS]).containers
        folder = self.node.root / "pod-logs" / f"default_{name}_{meta['uid']}"
        for log in folder.glob("*/*.log"):
            said = [line.split(" ", 3)[3] for line in log.read_text(errors="replace").splitlines() if line.count(" ") >= 3]
            if "END" not in said:
                continue
            container = log.parent.name
            part = parts[0] if container == "i" else parts[int(container[1:])]
            env = dict(line.split("=", 1) for line in said if "=" in line and " " not in line.split("=", 1)[0])
            page = limits_page.parse(base64.b64decode(said[said.index("END") - 1]))
            seen = env.get(variables.NVIDIA_VISIBLE_DEVICES), env.get(variables.memory_limit_of(0))
            due = part[0].uuid, f"{part[0].memory}m" if self.by_name else seen[1]  # by guess the page alone counts
            granted = [(card.uuid, card.memory >> 20) for card in page.cards] if page else None
            if seen != due or granted != [(part[0].uuid, part[0].memory)]:
                found.append(f"{name}/{container} saw {seen} and the page {granted}, due {due}")
        return found

    def reported(self, name: str) -> set[str]:
        """The containers that have started and said all."""
        folder = self.node.root / "pod-logs" / f"default_{name}_{self.pods[name]['metadata']['uid']}"
        return {log.parent.name for log in folder.glob("*/*.log") if "END" in log.read_text(errors="replace")}


def _box(name: str, part: Iterable[tuple[str, int]], script: str) -> Json:
    limits = {names.VGPU_NUMBER: "1", names.VGPU_MEMORY: str(next(iter(part))[1]), names.VGPU_CORES: "5"}
    return {"name": name, "image": real_kubelet.IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
            "resources": {"limits": limits}}  # fmt: skip


def stop_for(process: subprocess.Popen[bytes], seconds: float) -> None:
    """It hears nothing for so long, as when the network is away."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    process.send_signal(signal.SIGCONT)


def numbers_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("pumice.io-share_*.json")) if folder.is_dir() else []
