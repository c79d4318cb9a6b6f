"""Random Jobs, most of them wrong somewhere: the admission answers each, and what it lets in the controller serves."""

from __future__ import annotations

import copy
import os
from random import Random
from typing import Any

import pytest
from kit.job_world import job, on, task

from pumice.ports.cluster import Json
from pumice_jobs.admission.jobs import mutate, read_job, validate
from pumice_jobs.admission.review import CREATE, Request, Settings
from pumice_jobs.controllers.job.defaults import completed
from pumice_jobs.controllers.job.reconcile import problem_of

SEEDS = int(os.environ.get("PUMICE_ADMITTED_JOBS", "8"))
EACH = 200
CONTAINER = {"name": "c", "image": "x"}
CONTAINERS: tuple[Any, ...] = (
    CONTAINER, CONTAINER, CONTAINER, None, {"name": {}, "image": 5}, {**CONTAINER, "resources": 5}, {**CONTAINER, "env": 5},
    {**CONTAINER, "volumeMounts": [None]}, {**CONTAINER, **dict.fromkeys(("env", "ports", "volumeMounts", "resources"))},
    {**CONTAINER, "ports": [{"containerPort": None}]},
    *({**CONTAINER, "resources": each} for each in ({"limits": {"cpu": "1"}}, {"requests": {"cpu": "x"}}, {"requests": None})),
)  # fmt: skip
METADATA: tuple[Any, ...] = ({}, {}, {}, None, 5, {"labels": None}, {"labels": 5}, {"labels": {"a": 1}},
                             {"annotations": {"a": "b"}})  # fmt: skip
WORDS = ("--master=a", "--worker", "--port=x", "-port 99999", "--ssh-port=0", "--publish-not-ready-addresses=maybe")
PLUGINS = ("svc", "ssh", "env", "pytorch", "mpi", "tensorflow", "ray", "hcclrank", "none")


class Queues:
    """The one that is there."""

    def queue(self, name: str) -> Json | None:
        return {"metadata": {"name": name}, "spec": {}} if name == "default" else None

    def queues(self) -> list[Json]:
        return []

    def namespace(self, name: str) -> Json | None:
        return None


class Writer:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def likely(self, chance: float) -> bool:
        return self.rng.random() < chance

    def job(self) -> Json:
        rng, spec = self.rng, dict[str, Any]()
        if self.likely(0.3):
            spec["minAvailable"] = rng.choice([0, 1, 2, 9, -1])
        if self.likely(0.4):
            chosen = rng.sample(PLUGINS, rng.randint(1, 2))
            spec["plugins"] = {name: rng.sample(WORDS, rng.randint(0, 2)) for name in chosen}
        if self.likely(0.2):
            claim = [{"volumeClaimName": "c"}, {"volumeClaim": {}}, {"volumeClaim": None}, {}]
            spec["volumes"] = [{"mountPath": rng.choice(["/d", ""]), **rng.choice(claim)}]
        if self.likely(0.1):
            spec["queue"] = "nowhere"
        return job(rng.choice(["j", "j", "x" * 60]), *(self.task() for _ in range(rng.randint(0, 3))), **spec)

    def task(self) -> Json:
        rng, fields = self.rng, dict[str, Any]()
        if self.likely(0.2):
            fields["minAvailable"] = rng.choice([0, 1, 2, 5, -1])
        if self.likely(0.2):
            fields["dependsOn"] = {"name": rng.sample("abcx", rng.randint(0, 2)), "iteration": rng.choice(["any", "all", ""])}
        if self.likely(0.1):
            parts = {"totalPartitions": rng.choice([0, 1, 2]), "minPartitions": rng.choice([0, 3])}
            fields["partitionPolicy"] = {**parts, "partitionSize": 1}
        if self.likely(0.2):
            timed = {"events": ["PodFailed", "PodEvicted"], "action": "AbortJob", "timeout": rng.choice(["5s", "x", "-1s"])}
            by_code = {"exitCode": rng.choice([0, 3]), "action": "RestartJob"}
            fields["policies"] = [rng.choice([on("PodFailed", "RestartJob"), on("*", "Fly"), by_code, timed])]
        if self.likely(0.2):
            fields["topologyPolicy"] = rng.choice(["none", "restricted"])
        if self.likely(0.5):
            fields["template"] = self.template()
        return task(rng.choice(["a", "b", "c", "", "A", "x" * 63]), rng.randint(0, 3), **fields)

    def template(self) -> Any:
        rng = self.rng
        if self.likely(0.1):
            return rng.choice([5, "x", [], {}, {"spec": None}, {"spec": 5}, {"spec": {"containers": {"a": 1}}}])
        spec: Json = {"containers": [rng.choice(CONTAINERS) for _ in range(rng.randint(0, 2))]}
        others = {"initContainers": (None, 5, [CONTAINER]), "volumes": (None, [None]), "hostname": (None, 5, "h")}
        for key, values in others.items():
            if self.likely(0.2):
                spec[key] = rng.choice(values)
        return {"metadata": rng.choice(METADATA), "spec": spec}


def patched(obj: Json, patch: list[Json]) -> Json:
    found = copy.deepcopy(obj)
    for step in patch:
        found["spec"][step["path"].removeprefix("/spec/")] = step["value"]
    return found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_admission_answers_every_job_and_what_it_lets_in_is_served(seed: int) -> None:
    writer, admitted = Writer(seed), 0
    for _ in range(EACH):
        written = writer.job()
        answers = [mutate(Request(CREATE, "default", "j", written, {}), Queues(), Settings())]
        found = patched(written, answers[0].patch)
        answers.append(validate(Request(CREATE, "default", "j", found, {}), Queues(), Settings()))
        if any(answer.refused for answer in answers):
            continue
        admitted += 1
        read = read_job(found)
        assert not isinstance(read, str), found
        assert not problem_of(completed(read)), found
    assert admitted
