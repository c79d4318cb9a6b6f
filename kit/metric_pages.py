"""One page of each daemon, of one cluster, with a sample of what it can tell: rules and dashboards ask for nothing else."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kit.objects import group, node, pod
from kit.scheduler_daemon import CONF, create, daemon
from kit.virtual_time import run_virtually
from pumice.apps.service.http import read_process
from pumice.metrics.claims import ShareView, claim_families
from pumice.metrics.monitor import CardView, ContainerView, MonitorView, Trouble, UnaccountedView, monitor_page
from pumice.metrics.npu import SliceOwner, SliceView, SoftView, npu_families
from pumice.metrics.text import process_families, render
from pumice.ports.cards import CardReading, InstanceReading
from pumice.ports.cluster import ApiError, Json
from pumice.ports.region import DeviceUse
from pumice.wire import names, volcano
from pumice.wire.share_hours import nothing
from pumice_jobs.metrics.controller import answer_seconds, controller_page, pod_creation_latency, webhook_page

WITH_DRF = CONF.replace("  - name: proportion", "  - name: proportion\n  - name: drf")
CARD = "GPU-n1-0"
"""The first card of the scheduler's node, which the monitor tells of, too."""
SLICED = "GPU-m1-0,7,40960,NVIDIA-NVIDIA A100-SXM4-40GB,true,mig:"
IN_SLICES = {names.VGPU_MODE: "mig"}


async def busy_page(*more: Json) -> str:
    """The page of a scheduler that placed a gang, holds a pod that fits nowhere, and evicted what was left of a gang. ``more``:
    nodes, and pods that fit."""
    nodes = [obj for obj in more if obj["kind"] == "Node"]
    async with daemon(node("n1", cards=4, extra={"nvidia.com/gpu": "3"}), *nodes, conf=WITH_DRF) as running:
        body = {"metadata": {"name": "team"}, "spec": {"weight": 1, "capability": {"nvidia.com/gpu": "3", "cpu": "9"}}}
        await running.cluster.create(volcano.QUEUES, body)
        await create(running.cluster, group("g", minimum=2, queue="team", resources={"cpu": "1", "nvidia.com/gpu": "1"}))
        await create(running.cluster, *(pod(f"g-{i}", mib=4000, cores=30, cpu="1", group="g") for i in range(2)))
        await running.bind_all("g-0", "g-1")
        pods = [obj for obj in more if obj["kind"] == "Pod"]
        await create(running.cluster, *pods)
        await running.bind_all(*(obj["metadata"]["name"] for obj in pods))
        taken: list[str] = []  # whichever Binding of the gang comes first is taken, the other one is not

        def refuse(verb: str, path: str) -> ApiError | None:
            if "/bad-" not in path or not path.endswith("/binding"):
                return None
            taken.append(path)
            return ApiError(403, "Forbidden", "not you") if path != taken[0] else None

        running.cluster.fault = refuse
        bad = [pod(f"bad-{i}", mib=4000, group="bad", owner="job") for i in range(2)]
        await create(running.cluster, group("bad", minimum=2), *bad)
        await create(running.cluster, group("big", minimum=1), pod("big-0", mib=9000, group="big"))
        await running.clock.sleep(10)
        status, page = await running.page("/metrics")
        assert status == 200
        return page


@cache
def pages() -> dict[str, str]:
    """By what they are scraped as."""
    ends = {("default/j", "team"): 1}
    return {
        "volcano-scheduler": run_virtually(busy_page(node("m1", register=SLICED), pod("s", mib=4000, annotations=IN_SLICES))),
        "volcano-controller": controller_page(["team"], [("team", "Running")], ends, ends, pod_creation_latency(),
                                             {("default", "team", "NVIDIA-T4", "vgpu"): nothing()}) + _process(),
        "volcano-admission": webhook_page({("/jobs/validate", "refused"): 3}, answer_seconds()),
        "volcano-device-plugin": _npus(),
        "pumice-dra-driver": _claims(),
        "volcano-vgpu-monitor": _monitor(),
    }  # fmt: skip


def _process() -> str:
    return render(process_families(read_process()))


def _monitor() -> str:
    use = DeviceUse(context=1, module=2, data=2 << 30, total=3 << 30, sm=40)
    card = CardReading(0, CARD, 4 << 30, 8 << 30, 55, 20, "NVIDIA A100")
    slice_ = InstanceReading(CARD, "MIG-1", "1g.5gb", 0, 7, 0, 1 << 30, 5 << 30)
    train = ContainerView("default", "g-0", "train", [CardView(CARD, 4 << 30, 30, use)], touched=True, last_kernel=1760000000)
    by_claim = ContainerView("default", "p", "c", [CardView(CARD, 1 << 30, 50, use, share="s")], True, 1760000000, "c", "gpu")
    return monitor_page(MonitorView(
        [card], [train, by_claim], [slice_], [CARD], [UnaccountedView(CARD, 2 << 30, "default", "g-0", "train")],
        [Trouble("default", "g-0", "train", "memory-limit")], bad=1, strangers=1, silent=2.0), 1760000010.0)  # fmt: skip


def _claims() -> str:
    share = ShareView("default", "c", "gpu", "s", "gpu-0-shared", CARD, ["p"], 1 << 30, 50, 1 << 20)
    return render(claim_families("n1", [share], 0))


def _npus() -> str:
    chip, pod_owner = CardReading(0, "NPU-1", 1 << 30, 64 << 30, 30, name="910B3"), SliceOwner("default", "p", "c")
    return render(npu_families([chip], [SliceView(100, chip, "vir05_1c_16g", 5, 16384, 1024, 20, pod_owner)],
                               [SoftView(pod_owner, chip, 0, 1 << 30, 1 << 20)]))  # fmt: skip


@cache
def series() -> dict[str, frozenset[str]]:
    """Every name that stands on a page as Prometheus stores it, with its labels."""
    found: dict[str, set[str]] = {}
    for text in pages().values():
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name if sample.name in text else re.sub("_total$", "", sample.name)
                found.setdefault(name, set()).update(sample.labels)
    return {name: frozenset(labels) for name, labels in found.items()}


# -- Debian's Prometheus and its promtool, from the PATH or as `make prometheus` unpacks it; and what stands i


UNPACKED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pumice/prometheus/usr/bin"
WORDS = frozenset(("by", "on", "group_left", "without", "ignoring", "group_right", "or", "and", "unless", "offset", "bool"))
FUNCTIONS = frozenset((
    "sum", "max", "min", "count", "avg", "rate", "increase", "absent", "histogram_quantile", "label_replace", "label_values"))
SCRAPED = frozenset(("job", "instance", "node", "le"))
"""Labels that Prometheus gives itself, and our way of finding the pages."""


def program(name: str) -> str:
    """Skips the test where there is none."""
    found = shutil.which(name) or (str(UNPACKED / name) if (UNPACKED / name).exists() else None)
    if not found:
        pytest.skip(f"{name} is not here (make prometheus, or Debian's package prometheus)")
    return found


def asked_for(query: str) -> Iterator[tuple[str, set[str]]]:
    """Every metric of a query, and the labels by which it is chosen."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', query)
    for _ in range(2):  # lists of labels name no metrics
        bare = re.sub(r"\b(by|on|group_left|without|ignoring|group_right) ?\([^()]*\)", "", bare)
    for name, chosen in re.findall(r"([a-zA-Z_:][\w:]*)(?!\w) ?(\{[^}]*\})?", re.sub(r"\[[^\]]*\]|offset \w+", "", bare)):
        if name not in WORDS | FUNCTIONS and not re.search(rf"\{{[^}}]*\b{name}\b ?[=!]", bare):
            yield name, set(re.findall(r"(\w+) ?[=!]~?", chosen))


def grouped(query: str) -> set[str]:
    """The labels by which it puts together."""
    lists = re.findall(r"\b(?:by|on|group_left|without|ignoring) ?\(([^()]*)\)", query)
    return {word.strip() for words in lists for word in words.split(",") if word.strip()}
