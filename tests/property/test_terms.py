"""Inter-pod terms after any history equal a plain evaluation over all pods."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from kit.objects import node, pod
from kit.scheduler_confs import conf

from pumice.scheduler.engine import Engine
from pumice.scheduler.plugins.contract import Part
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf

Json = dict[str, Any]
ZONE, HOST = "zone", "kubernetes.io/hostname"
APPS, TIERS = [f"app{n}" for n in range(6)], ["web", "db"]


class Cluster:
    """Nodes and placed pods, plainly; beside it the engine that hears of the same."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.engine = Engine(parse_scheduler_conf(conf("predicates", "nodeorder")))
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        for number in range(8):
            self.put_node(f"n{number}")

    def put_node(self, name: str) -> None:
        labels = {ZONE: self.rng.choice("abc")} if self.rng.random() < 0.8 else {}
        self.nodes[name] = node(name, labels=labels, cpu="1000", memory="1000Gi", pods=1000)
        self.engine.state.bookings.put_node(convert(Node, self.nodes[name]))

    def step(self, number: int) -> None:
        rng, state = self.rng, self.engine.state
        match rng.choices(("come", "go", "leave", "relabel", "vanish", "return"), (8, 3, 3, 1, 0.5, 1))[0]:
            case "come" if self.nodes:
                obj = random_pod(rng, f"p{number}")
                obj["spec"] |= {"nodeName": rng.choice(list(self.nodes)), "schedulerName": "default-scheduler"}
                self.pods[f"p{number}"] = obj
                state.pods.put(convert(Pod, obj))
            case "go" if self.pods:
                obj = self.pods[rng.choice(list(self.pods))]
                obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
                state.pods.put(convert(Pod, obj))
            case "leave" if self.pods:
                state.pods.drop(convert(Pod, self.pods.pop(rng.choice(list(self.pods)))))
            case "relabel" if self.nodes:
                self.put_node(rng.choice(list(self.nodes)))
            case "vanish" if len(self.nodes) > 3:
                name = rng.choice(list(self.nodes))
                del self.nodes[name]
                state.bookings.drop_node(name)
            case "return":
                self.put_node(f"n{rng.randrange(8)}")

    def allowed(self, obj: Json) -> set[str]:
        """By the rules, one node after the other, from the objects alone."""
        return {name for name in self.nodes if self.welcome(obj, name) and self.even(obj, name)}

    def welcome(self, obj: Json, name: str) -> bool:
        mine, placed = required(obj, "podAntiAffinity"), [p for p in self.pods.values() if p["spec"]["nodeName"] in self.nodes]
        for other in placed:
            there = other["spec"]["nodeName"]
            if any(matches(t, other) and self.same(t, name, there) for t in mine):
                return False
            if any(matches(t, obj) and self.same(t, name, there) for t in required(other, "podAntiAffinity")):
                return False
        wanted = required(obj, "podAffinity")
        company = [p for p in placed if all(matches(t, p) for t in wanted)]
        labels = self.nodes[name]["metadata"]["labels"]
        if any(t["topologyKey"] not in labels for t in wanted):
            return False
        if all(any(self.same(t, name, p["spec"]["nodeName"]) for p in company) for t in wanted):
            return True
        seen = any(t["topologyKey"] in self.nodes[p["spec"]["nodeName"]]["metadata"]["labels"] for t in wanted for p in company)
        return not seen and all(matches(t, obj) for t in wanted)

    def even(self, obj: Json, name: str) -> bool:
        rules = obj["spec"].get("topologySpreadConstraints", ())
        keys = [rule["topologyKey"] for rule in rules]
        for rule in rules:
            key, labels = rule["topologyKey"], self.nodes[name]["metadata"]["labels"]
            if key not in labels:
                return False
            everywhere = [n["metadata"]["labels"] for n in self.nodes.values()]
            counts = {found[key]: 0 for found in everywhere if all(k in found for k in keys)}
            for other in self.pods.values():
                where = self.nodes.get(other["spec"]["nodeName"])
                if where is None or any(k not in where["metadata"]["labels"] for k in keys):
                    continue
                if "deletionTimestamp" not in other["metadata"] and matches(rule, other):
                    counts[where["metadata"]["labels"][key]] += 1
            if counts and counts.get(labels[key], 0) + matches(rule, obj) - min(counts.values()) > rule["maxSkew"]:
                return False
        return True

    def same(self, term: Json, one: str, other: str) -> bool:
        key = term["topologyKey"]
        mine, theirs = (self.nodes[name]["metadata"]["labels"].get(key) for name in (one, other))
        return mine is not None and mine == theirs


def required(obj: Json, kind: str) -> list[Json]:
    found: list[Json] = obj["spec"].get("affinity", {}).get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return found


def matches(term: Json, obj: Json) -> bool:
    labels, selector = obj["metadata"]["labels"], term["labelSelector"]
    for expression in selector.get("matchExpressions", ()):
        value, values = labels.get(expression["key"]), expression.get("values", ())
        if {"In": value not in values, "NotIn": value in values, "Exists": value is None}[expression["operator"]]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def random_pod(rng: random.Random, name: str) -> Json:
    labels = {"app": rng.choice(APPS), **({"tier": rng.choice(TIERS)} if rng.random() < 0.7 else {})}
    affinity = {}
    for kind in ("podAffinity", "podAntiAffinity"):
        if rng.random() < 0.4:
            terms = [random_term(rng) for _ in range(rng.randint(1, 2))]
            affinity[kind] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    rules = [{**random_term(rng), "maxSkew": rng.randint(1, 2), "whenUnsatisfiable": "DoNotSchedule"}
             for _ in range(rng.choice((0, 0, 1, 2)))]  # fmt: skip
    return pod(name, cpu="1", labels=labels, affinity=affinity, topologySpreadConstraints=rules)


def random_term(rng: random.Random) -> Json:
    selector = rng.choice((
        {"matchLabels": {"app": rng.choice(APPS)}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": rng.sample(APPS, 2)}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": rng.sample(APPS, 5)}]},
        {"matchExpressions": [{"key": "tier", "operator": "Exists"}]},
        {"matchLabels": {"tier": rng.choice(TIERS)}},
    ))  # fmt: skip
    return {"labelSelector": selector, "topologyKey": rng.choice((ZONE, HOST))}


@pytest.mark.parametrize("seed", range(12))
def test_the_verdicts_are_those_of_a_plain_look_at_all_pods(seed: int) -> None:
    cluster = Cluster(seed)
    state, table = cluster.engine.state, cluster.engine.state.ledger.table
    asking = [random_pod(cluster.rng, f"asks-{n}") for n in range(12)]
    refused_some = 0
    for number in range(60):
        cluster.step(number)
        for obj in cluster.rng.sample(asking, 4):
            cls = state.classes.of(convert(Pod, obj))
            refused = cluster.engine.framework.refused_for_pods(state, cls)
            ours = {table.name(int(row)) for row in table.live_rows() if refused is None or not refused[row]}
            assert ours == cluster.allowed(obj), (number, obj["metadata"]["labels"], obj["spec"])
            both = cluster.engine.placer.evaluation.fits(cls, None)
            assert {table.name(int(row)) for row in np.flatnonzero(both)} == ours
            refused_some += len(ours) < len(cluster.nodes)
    assert refused_some > 20, "the histories refuse too little"
    assert not list(cluster.engine.framework.verdicts(state, cls.base, None, Part.NODE)), "nodes alone refuse nothing here"
