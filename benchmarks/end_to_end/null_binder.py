"""The yardstick of the end-to-end rate: a loop that watches pods and sends Bindings with annotations, and decides nothing.

    python -m benchmarks.end_to_end.null_binder KUBECONFIG

It walks over the cards once and gives each pod the next card with room (next fit); 32 Bindings are in flight at most.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json
from pumice.wire import kinds

NULL_BINDER = "null-binder"


async def run(kubeconfig: Path) -> None:
    async with KubeClient.from_kubeconfig(kubeconfig, connections=64, user_agent=NULL_BINDER) as kube:
        names = [n["metadata"]["name"] for n in (await kube.list(kinds.NODES))["items"]]
        cards = [(name, f"GPU-{name}-{c}") for name in names for c in range(8)]
        left = {card: [81920, 100, 10] for card in cards}
        room = asyncio.Semaphore(32)
        at = 0

        async def send(obj: Json, name: str, ids: str) -> None:
            meta = obj["metadata"]
            keys = ("vgpu-ids-new", "devices-to-allocate")
            annotations = {f"volcano.sh/{key}": ids for key in keys} | {
                "volcano.sh/vgpu-node": name, "volcano.sh/vgpu-time": "1", "volcano.sh/bind-phase": "allocating",
                "volcano.sh/bind-time": "1"}  # fmt: skip
            body = {"apiVersion": "v1", "kind": "Binding", "target": {"apiVersion": "v1", "kind": "Node", "name": name},
                    "metadata": {"name": meta["name"], "namespace": "default", "annotations": annotations}}  # fmt: skip
            async with room:
                await kube.bind("default", meta["name"], json.dumps(body).encode())

        tasks = set()
        print("ready nodes", file=sys.stderr, flush=True)
        async for event in kube.watch(kinds.PODS, "default", field_selector="spec.nodeName="):
            if event.type != "ADDED":
                continue
            obj = json.loads(event.raw)
            if obj["spec"]["schedulerName"] != NULL_BINDER:
                continue
            limits = obj["spec"]["containers"][0]["resources"]["limits"]
            mib, cores = int(limits["volcano.sh/vgpu-memory"]), int(limits["volcano.sh/vgpu-cores"])
            while any(have < want for have, want in zip(left[cards[at]], (mib, cores, 1), strict=True)):
                at += 1
            card = cards[at]
            left[card] = [left[card][0] - mib, left[card][1] - cores, left[card][2] - 1]
            task = asyncio.create_task(send(obj, card[0], f"{card[1]},NVIDIA,{mib},{cores}:"))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1])))
