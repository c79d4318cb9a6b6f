"""The steps of the planes with NPUs: workloads that ask for them, and what befalls the plugin meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kit import objects
from kit.fake_cluster import Json, Store
from tests.property.history.registry import Op, View, kind
from tests.property.plane.kinds import CUT, GRACE, HAMI, SLICED, _create, _emptied, _some
from tests.property.plane.node import LIFE
from tests.property.plane.npu_judge import CHIP, CORE, HELD, MEMORY, asks

Ask = Callable[[Random], tuple[Json, Json]]
"""Draws what a container is limited to, and the labels of its pod."""


def cores(rng: Random) -> tuple[Json, Json]:
    number = rng.choice((1, 1, 2, 2, 2, 4, 4, 8, 16))
    dvpp = rng.choice(("null", "null", "null", "yes", "no")) if number == 4 else "null"
    labels = {"ring-controller.atlas": "ascend-310P", "vnpu-level": rng.choice(("low", "high")), "vnpu-dvpp": dvpp}
    return {CORE: str(number)}, labels


def parts(rng: Random) -> tuple[Json, Json]:
    memory = rng.choice((3072, 3072, 6144, 6144, 12288, 12288, None))
    return ({CHIP: rng.choice("112")} if memory is None else {CHIP: "1", MEMORY: str(memory)}), {}


def make(ask: Ask, name: str, rng: Random, *, group: str | None = None) -> Json:
    limits, labels = ask(rng)
    made = objects.pod(name, limits=limits, labels=labels | ({"gang": group} if group else {}), group=group)
    for part in ("uid", "creationTimestamp"):
        made["metadata"].pop(part, None)
    del made["status"]
    made["spec"] |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": rng.choice(GRACE)}
    if ask is parts and rng.random() < 0.2:
        made["spec"]["containers"].append({**objects.pod("x", limits=ask(rng)[0])["spec"]["containers"][0], "name": "second"})
    if rng.random() < 0.6:
        made["metadata"]["annotations"][LIFE] = str(rng.choice((1, 5, 20, 90)))
    return made


def kinds_of(plane: str, ask: Ask, *steps: str) -> None:
    """Register the steps of a plane. ``steps``: the effects at which its plugin dies."""

    @kind(f"pods come to the {plane}", 14, plane)
    def come(view: View, rng: Random) -> list[Op]:
        name = f"a{rng.getrandbits(24):06x}"
        return [_create("pods", make(ask, f"{name}-{at}", rng)) for at in range(rng.choice((1, 1, 2, 3, 6)))]

    @kind(f"a gang comes to the {plane}", 3, plane)
    def gang(view: View, rng: Random) -> list[Op]:
        name, size = f"n{rng.getrandbits(24):06x}", rng.randint(2, 4)
        group = objects.group(name, minimum=rng.randint(2, size))
        group["metadata"] = {"name": name, "namespace": "default"}
        del group["status"]
        return [_create("podgroups", group), *(_create("pods", make(ask, f"{name}-{at}", rng, group=name)) for at in range(size))]

    @kind(f"a plugin dies while it cuts for a pod on the {plane}, and the pod goes", 4, plane)
    def cut_short(view: View, rng: Random) -> list[Op]:
        name = f"c{rng.getrandbits(24):06x}"
        pod = make(ask, name, rng)
        step = rng.choice(steps)
        death: Op = {"do": "kill", "process": f"plugin {SLICED}", "writes": 0, "done": rng.random() < 0.5,
                     "only": step, "at once": False}
        refusal: Op = {"do": "fault", "process": f"plugin {SLICED}", "only": step, "code": 500, "count": rng.choice((1, 2, 4)),
                       "done": False}
        return [*rng.choice(([], _emptied(view))), rng.choice((death, death, refusal)), _create("pods", pod),
                {"do": "wait", "seconds": rng.choice((1.0, 2.0, 8.0))},
                {"do": "delete", "kind": "Pod", "key": f"default/{name}", "now": rng.random() < 0.7},
                {"do": "wait", "seconds": rng.choice((1.0, 8.0))}]  # fmt: skip

    @kind(f"something befalls the node with NPUs of the {plane} while pods come", 5, plane)
    def befallen(view: View, rng: Random) -> list[Op]:
        part = rng.choice(("kubelet", "plugin", "plugin"))
        befalls: list[Op] = [
            {"do": rng.choice(("reboot", "restart containers", "lose record")), "node": SLICED},
            {"do": "kill", "process": f"{part} {SLICED}", "writes": rng.choice((0, 1, 3)), "done": rng.random() < 0.5, "only": "",
             "at once": rng.random() < 0.5},
            {"do": "away", "process": f"{part} {SLICED}", "seconds": rng.choice((6.0, 20.0, 60.0)), "lists": rng.random() < 0.5},
            {"do": "stop", "process": f"{part} {SLICED}", "seconds": rng.choice((12.0, 40.0))},
            {"do": "card", "node": SLICED, "card": rng.randrange(2), "lost": rng.random() < 0.6}]  # fmt: skip
        first = [*come(view, rng), {"do": "wait", "seconds": rng.choice((0.3, 1.0, 3.0, 8.0))}]
        return [*first, *rng.sample(befalls, rng.choice((1, 1, 2))),
                {"do": "wait", "seconds": rng.choice((0.3, 3.0))}, *come(view, rng), {"do": "wait", "seconds": 8.0}]

    @kind(f"an owner writes on a pod what the scheduler or the plugin would on the {plane}", 3, plane)
    def forged(view: View, rng: Random) -> list[Op] | None:
        found = _some(view, rng, "Pod", asks)
        if found is None:
            return None
        key, texts = rng.choice(FORGED[ask])
        return [{"do": "annotate", "key": Store.key(found), "annotations": {key: rng.choice(texts)}}]


FORGED = {
    cores: ((CORE, ("0", "1-vir01", "0,1", "nonsense", "")), ("predicate-time", ("1", "18446744073709551615", "x")),
            ("huawei.com/AscendReal", ("Ascend310P-1c-100-0_0", "Ascend310P-0", "")), ("huawei.com/kltDev", ("npu-core-0", ""))),
    parts: ((HELD, ("NPU-m0-0,Ascend310P,3072,0:;", "NPU-m0-1,Ascend310P,21527,0:;", "nonsense", "")),
            ("hami.io/Ascend310P-devices-to-allocate", ("NPU-m0-0,Ascend310P,3072,0:;", ";", "")),
            ("huawei.com/Ascend310P", ('[{"UUID":"NPU-m0-0","temp":"vir01"}]', "[]", "x")),
            ("hami.io/bind-phase", ("failed", "success", "allocating")), ("predicate-time", ("1", "x"))),
}  # fmt: skip

kinds_of(CUT, cores, "make slice", "make slice", "remove slice", "PATCH pods")
kinds_of(HAMI, parts, "remove slice", "PATCH pods")
