"""Pods by the thousand from named distributions: when they arrive, what they ask for, and how long they run.

    pods=1000,shape=mixed,arrival=poisson:2/s,duration=lognormal:10m:1.5,queue=q1,gang=4,patience=1h
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from math import inf, log
from random import Random

from pumice.model.errors import nearest
from pumice.simulation import manifests
from pumice.simulation.manifests import Json
from pumice.simulation.play import Submission
from pumice.simulation.trace import Task
from pumice.simulation.words import Words
from pumice.wire import names
from pumice.wire.quantity import parse_quantity

KEYS = ("pods", "shape", "arrival", "duration", "queue", "gang", "patience")
SHARES = ((20, 1, 10, 2, 8), (30, 1, 25, 4, 16), (30, 1, 50, 6, 32), (20, 1, 80, 8, 48))
WHOLE = ((70, 1, 100, 10, 64), (15, 2, 100, 20, 128), (10, 4, 100, 40, 256), (5, 8, 100, 80, 512))
SHAPES: Mapping[str, Sequence[tuple[float, int, int, int, int]]] = {
    "shares": SHARES,
    "whole": WHOLE,
    "mixed": (*((3.8 * weight, 1, percent, cpu, gib) for weight, _, percent, cpu, gib in SHARES),
              (480, 1, 100, 10, 64), (2, 2, 100, 20, 128), (2, 4, 100, 40, 256), (6, 8, 100, 80, 512), (130, 0, 0, 8, 16)),
}  # fmt: skip
"""Rows of weight, cards, per cent of a card's memory, CPUs and GiB. ``mixed`` has about the parts that the public trace has of
pods without cards, with shares, with one card and with several."""
TRACE = "trace"
"""The pods of the trace that was read, drawn with replacement."""
RATES = {"s": 1.0, "m": 60.0, "h": 3600.0}


Beside = tuple[float, float]
"""CPUs and bytes of memory for each card of a node."""


def beside_cards(nodes: Iterable[Json]) -> Beside:
    """Return what the node with the most CPUs for each of its vGPU cards has for them; without end where no node has any."""
    found: list[Beside] = []
    for node in nodes:
        has = (node.get("status") or {}).get("allocatable") or {}
        cards = parse_quantity(has.get(names.VGPU_CORES, "0")) / 100
        if cards:
            cpu, memory = (float(parse_quantity(has.get(what, "0")) / cards) for what in ("cpu", "memory"))
            found.append((cpu, memory))
    return max(found, default=(inf, inf))


def generate(
    option: str, text: str, rng: Random, tasks: Sequence[Task], prefix: str = "pod", beside: Beside = (inf, inf)
) -> list[Submission]:
    """The submissions of one flow. No pod asks for more than its cards' part of what is ``beside`` them. Raises BadInput with
    the key that cannot be."""
    words = Words(option, text, KEYS)
    size = words.whole("gang", 1)
    number = words.whole("pods")
    if number % size:
        raise words.error(f"{number} pods are no whole number of gangs of {size}")
    draw, at, runs = _shapes(words, rng, tasks, beside), _arrivals(words, rng), _durations(words, rng)
    patience = words.seconds("patience") or inf
    found: list[Submission] = []
    for serial in range(number // size):
        template, own = draw()
        found.append(Submission(at(), f"{prefix}-{serial:06d}", (template,) * size, size if size > 1 else 0,
                                own if runs is None else runs(), patience))  # fmt: skip
    return found


def _shapes(words: Words, rng: Random, tasks: Sequence[Task], beside: Beside) -> Callable[[], tuple[Json, float]]:
    """Draws a template, and how long the trace says that it runs."""
    name, queue = words.get("shape", "mixed"), words.object_name("queue")
    if name == TRACE:
        if not tasks:
            raise words.error("shape=trace draws from a list of pods; give one with --trace")
        if queue:
            raise words.error("the pods of a trace have no queue")
        return lambda: (task := rng.choice(tasks)) and (task.template, task.runs)
    if name not in SHAPES:
        known = (*SHAPES, TRACE)
        raise words.error(f"no shape {name!r} among {', '.join(known)}{nearest(name, known)}")
    rows = SHAPES[name]
    templates = [_template(cards, percent, cpu, gib, queue, beside) for _, cards, percent, cpu, gib in rows]
    weights = [row[0] for row in rows]
    return lambda: (rng.choices(templates, weights)[0], inf)


def _template(cards: int, percent: int, cpu: int, gib: int, queue: str, beside: Beside) -> Json:
    asked = {"cpu": str(cpu), "memory": f"{gib}Gi"}
    if cards:
        part = cards * percent / 100
        asked["cpu"] = f"{int(1000 * min(cpu, part * beside[0]))}m"
        asked["memory"] = f"{int(1024 * min(gib, part * beside[1] / 2**30))}Mi"
        asked |= {names.VGPU_NUMBER: str(cards), names.VGPU_MEMORY_PERCENTAGE: str(percent)}
    return manifests.pod(asked, queue=queue)


def _arrivals(words: Words, rng: Random) -> Callable[[], float]:
    """The times of arrival, one after the other."""
    text = words.get("arrival", "once")
    kind, _, rate = text.partition(":")
    kinds = ("poisson", "even", "once")
    if kind not in kinds:
        raise words.error(f"arrival: write poisson:2/s, even:90/h or once, not {text!r}{nearest(kind, kinds)}")
    if kind == "once":
        return lambda: 0.0
    number, _, unit = rate.partition("/")
    try:
        each = RATES[unit] / float(number)
    except (ValueError, KeyError, ZeroDivisionError):
        each = 0.0
    if not 0 < each < inf:
        raise words.error(f"arrival: {rate!r} is no rate; write for example {kind}:2/s, {kind}:30/m or {kind}:90/h")
    if kind == "even":
        serial = count()
        return lambda: next(serial) * each
    last = 0.0

    def poisson() -> float:
        nonlocal last
        last += rng.expovariate(1 / each)
        return last

    return poisson


def _durations(words: Words, rng: Random) -> Callable[[], float] | None:
    """The seconds that a pod runs; None: as the trace says."""
    kind, *rest = words.get("duration", "forever").split(":")
    kinds = {"fixed": 1, "exponential": 1, "lognormal": 2, "forever": 0, TRACE: 0}
    if kind not in kinds or len(rest) != kinds[kind]:
        raise words.error("duration: write fixed:10m, exponential:10m, lognormal:10m:1.5 (median and sigma), forever or trace, "
                          f"not {words['duration']!r}{nearest(kind, kinds)}")  # fmt: skip
    if kind == TRACE:
        if words.get("shape") != TRACE:
            raise words.error("duration=trace needs shape=trace")
        return None
    if kind == "forever":
        return lambda: inf
    typical = words.seconds("duration", rest[0])
    if kind == "fixed":
        return lambda: typical
    if typical <= 0:
        raise words.error("duration: it is not above 0")
    if kind == "exponential":
        return lambda: rng.expovariate(1 / typical)
    try:
        sigma = float(rest[1])
    except ValueError:
        sigma = -1.0
    if not 0 <= sigma <= 10:
        raise words.error(f"duration: sigma is a number from 0 to 10, not {rest[1]!r}")
    return lambda: rng.lognormvariate(log(typical), sigma)
