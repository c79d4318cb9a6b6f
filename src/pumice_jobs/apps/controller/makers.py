"""CronJobs and JobFlows: the kinds whose objects make Jobs. What they want is decided by pure functions and done here.

Probe a port: an empty text means that it answers, any other is the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import aiohttp
import msgspec

from pumice.apps.service.watches import object_of
from pumice.effects.performer import Performer
from pumice.effects.vocabulary import Create, Event, Patch, Requeue, Severity
from pumice.effects.work_queue import WorkQueue
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, WatchEvent
from pumice.wire.batch import FLOW_API, JOB_API, JOB_TEMPLATES, Job
from pumice.wire.names import OF_TEMPLATE
from pumice_jobs.apps.controller.job_store import JobStore
from pumice_jobs.controllers import cronjob, jobflow
from pumice_jobs.controllers.cronjob import Action
from pumice_jobs.controllers.job.requests import task_of
from pumice_jobs.controllers.jobflow import Check, Probe


async def http_answers(url: str, headers: Mapping[str, str], patience: float) -> str:
    """A redirect is an answer: whoever is asked leads nobody elsewhere."""
    limit = aiohttp.ClientTimeout(total=patience)
    try:
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.get(url, headers=headers, allow_redirects=False) as answer,
        ):
            return "" if 200 <= answer.status < 400 else f"{url} says {answer.status}"
    except TimeoutError:
        return f"{url} says nothing within {patience:g}s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return f"{url}: {error}"


async def tcp_answers(host: str, port: int, patience: float) -> str:
    try:
        async with asyncio.timeout(patience):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"{host}:{port} says nothing within {patience:g}s"
    except (OSError, OverflowError, ValueError) as error:
        return f"{host}:{port}: {error}"
    writer.close()
    return ""


log = logging.getLogger("pumice.controller")

CRON, FLOW, TEMPLATE = "cronjob", "jobflow", "jobtemplate"
APIS: Final = {CRON: (JOB_API, "CronJob"), FLOW: (FLOW_API, "JobFlow")}
BETWEEN_PROBES, PATIENCE = 5.0, 1.0
"""Seconds between two probes of a step, and those for which one waits for its answer."""
ASKED = 32
"""So many pods of a task are asked at most; and so many steps at once."""


@dataclass(slots=True)
class Makers:
    """The controllers of CronJobs and JobFlows. ``found`` holds the objects of both kinds, by kind and key."""

    cluster: Cluster
    clock: Clock
    performer: Performer
    work: WorkQueue
    jobs: JobStore
    found: dict[tuple[str, str], Json] = field(default_factory=dict)
    templates: dict[str, dict[str, Json]] = field(default_factory=dict)
    """JobTemplates by namespace and name."""
    _answered: dict[str, set[str]] = field(default_factory=dict)
    """Uid of a flow to the steps whose probes have been answered."""
    _probes: asyncio.Queue[tuple[str, Json, Probe]] = field(default_factory=asyncio.Queue)
    """With the flow and its key."""
    _asking: set[tuple[str, str]] = field(default_factory=set)
    """Uids of flows and their steps that wait for an answer."""
    _children: dict[str, set[str]] = field(default_factory=dict)
    """Uid of a maker to the keys of its Jobs."""
    _made_of: dict[str, set[str]] = field(default_factory=dict)
    """Key of a template to the names of the Jobs made of it."""

    def on(self, kind: str) -> Callable[[WatchEvent], None]:
        def handle(event: WatchEvent) -> None:
            obj = msgspec.json.decode(event.raw)
            key = f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
            if event.type == "DELETED":
                self.found.pop((kind, key), None)
                self.performer.recorder.forget(obj["metadata"]["uid"])
                self._answered.pop(obj["metadata"]["uid"], None)
            else:
                self.found[kind, key] = obj
                self.work.add(kind, key)

        return handle

    def on_template(self, event: WatchEvent) -> None:
        obj = msgspec.json.decode(event.raw)
        meta = obj["metadata"]
        mine = self.templates.setdefault(meta["namespace"], {})
        if event.type == "DELETED":
            mine.pop(meta["name"], None)
            return
        mine[meta["name"]] = obj
        self.work.add(TEMPLATE, f"{meta['namespace']}/{meta['name']}")
        for kind, key in self.found:
            if kind == FLOW and key.startswith(f"{meta['namespace']}/"):
                self.work.add(kind, key)

    def on_job(self, event: WatchEvent) -> None:
        """A Job has changed: whoever made it looks at it."""
        job = object_of(Job, event)
        if template := job.metadata.labels.get(OF_TEMPLATE, "").removeprefix(f"{job.metadata.namespace}."):
            key = f"{job.metadata.namespace}/{template}"
            made = self._made_of.setdefault(key, set())
            if (job.metadata.name in made) == (event.type == "DELETED"):
                (made.discard if event.type == "DELETED" else made.add)(job.metadata.name)
                self.work.add(TEMPLATE, key)
        for owner in job.metadata.owner_references:
            kind = next((kind for kind, (_, name) in APIS.items() if owner.controller and owner.kind == name), "")
            if kind:
                mine = self._children.setdefault(owner.uid, set())
                (mine.discard if event.type == "DELETED" else mine.add)(job.key)
                if not mine:
                    del self._children[owner.uid]
                self.work.add(kind, f"{job.metadata.namespace}/{owner.name}")

    async def reconcile(self, kind: str, key: str) -> None:
        if kind == TEMPLATE:
            await self._say_what_was_made(*key.split("/"))
            return
        obj = self.found.get((kind, key))
        if obj is None:
            return
        keys = self._children.get(obj["metadata"]["uid"], set())
        jobs = [self.jobs.jobs[name].job for name in sorted(keys) if name in self.jobs.jobs]
        if kind == CRON:
            await self._keep_time(key, obj, jobs)
            return
        uid, templates = obj["metadata"]["uid"], self.templates.get(obj["metadata"]["namespace"], {})
        for step in jobflow.reconcile(obj, templates, jobs, self._answered.get(uid, set())):
            if not isinstance(step, Probe):
                await self._perform(kind, key, obj, step)
            elif (uid, step.step) not in self._asking:
                self._asking.add((uid, step.step))
                self._probes.put_nowait((key, obj, step))

    async def _keep_time(self, key: str, obj: Json, jobs: Sequence[Job]) -> None:
        """A Job that is made now is active in the same status that says its time."""
        made: list[Json] = []
        for action in cronjob.reconcile(obj, jobs, self.clock.now()):
            if isinstance(action, Patch) and made:
                status = action.body["status"]
                action = replace(action, body={"status": {**status, "active": [*status["active"], *made]}})
            job = await self._perform(CRON, key, obj, action)
            if job is not None:
                meta = job["metadata"]
                made.append(cronjob.reference(meta["namespace"], meta["name"], meta["uid"]))

    async def _say_what_was_made(self, namespace: str, name: str) -> None:
        """The status of a JobTemplate."""
        template = self.templates.get(namespace, {}).get(name)
        made = sorted(self._made_of.get(f"{namespace}/{name}", ()))
        if template is None or ((template.get("status") or {}).get("jobDependsOnList") or []) == made:
            return
        body = {"metadata": {"uid": template["metadata"]["uid"]}, "status": {"jobDependsOnList": made}}
        try:
            await self.cluster.patch(JOB_TEMPLATES, name, body, namespace, subresource="status")
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def ask_for_ever(self) -> None:
        """Make the probes, beside the work: pods that answer nobody hold no Job up."""
        async with asyncio.TaskGroup() as group:
            for _ in range(ASKED):
                group.create_task(self._ask())

    async def _ask(self) -> None:
        while True:
            key, flow, probe = await self._probes.get()
            uid = flow["metadata"]["uid"]
            try:
                await self._probe(key, flow, probe)
            except ApiError as error:  # of the event: it is told with the next answer
                log.info("event not written on JobFlow %s: %s", key, error)
            except Exception:  # whatever somebody wrote, it ends no daemon
                log.exception("cannot probe for JobFlow %s", key)
                self.work.add_later(FLOW, key, BETWEEN_PROBES)
            finally:
                self._asking.discard((uid, probe.step))

    async def _probe(self, key: str, flow: Json, probe: Probe) -> None:
        """Ask all at once; a step whose probes are answered starts, for good."""
        meta = flow["metadata"]
        problems = [text for text in await asyncio.gather(*(self._check(meta, check) for check in probe.checks)) if text]
        if problems:
            self.work.add_later(FLOW, key, BETWEEN_PROBES)
            text = f"{probe.step} waits for its probes: {'; '.join(problems)}"
            await self.performer.recorder.write_if_new(_event(FLOW, flow, "Normal", "ProbeUnanswered", text))
        elif (FLOW, key) in self.found:
            self._answered.setdefault(meta["uid"], set()).add(probe.step)
            self.work.add(FLOW, key)

    async def _check(self, meta: Json, check: Check) -> str:
        """One pod that answers will do."""
        jobs = [found for name in check.jobs if (found := self.jobs.jobs.get(f"{meta['namespace']}/{name}")) is not None]
        pods = [pod for job in jobs for pod in self.jobs.pods_of(job).values() if task_of(pod) == check.task]
        addresses = [pod.status.pod_ip for pod in pods if pod.status.pod_ip and pod.status.phase == "Running"][:ASKED]
        if not addresses:
            return f"no pod of task {check.task} runs"
        answers = await asyncio.gather(*(ask(check, address) for address in addresses))
        return "" if "" in answers else answers[0]

    async def _perform(self, kind: str, key: str, obj: Json, effect: Action) -> Json | None:
        """The Job that was made, if one was."""
        if isinstance(effect, Event):
            await self.performer.recorder.write_if_new(effect)
            return None
        if isinstance(effect, Requeue):
            self.work.add_later(kind, key, effect.seconds)
            return None
        try:
            answer = await self.performer.perform(effect)
        except ApiError as error:
            if not isinstance(effect, Create):
                raise
            if error.code != 409:  # else it is there: by our own hand, as far as its name tells
                text = f"Error creating job: {error.message}"
                await self.performer.recorder.write_if_new(_event(kind, obj, "Warning", "FailedCreate", text))
                raise
            return None
        if isinstance(effect, Patch) and answer is not None:
            self.found[kind, key] = answer
        return answer if isinstance(effect, Create) else None


def _event(kind: str, obj: Json, type_: Severity, reason: str, message: str) -> Event:
    api_version, name = APIS[kind]
    return Event.on(obj, type_, reason, message, api_version=api_version, kind=name)


async def ask(check: Check, address: str) -> str:
    host = f"[{address}]" if ":" in address else address
    if check.path is None:
        return await tcp_answers(address, check.port, PATIENCE)
    url = f"http://{host}:{check.port}/{check.path.lstrip('/')}"
    return await http_answers(url, dict(check.headers), PATIENCE)
