"""The scheduler's ``/metrics``: upstream's names, types and labels (spec volcano-core 22, deviceshare-nvidia 17).

Latencies are observed as they happen; everything about objects (cards, queues, jobs) is read from the engine's state at
scrape time, so a dead object leaves no series (decision 8). Rendered card lines are kept per node and made again only when
that node's cards changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from pumice.engine.cards import FamilyBook
from pumice.engine.node_book import NodeBook
from pumice.engine.cycle import Plan
from pumice.engine.engine import Engine
from pumice.engine.model import Job, QueueState, Status, Task
from pumice.engine.observe import Histogram, escape, exponential, family, number
from pumice.engine.plugins.drf import Drf
from pumice.engine.plugins.proportion import Proportion
from pumice.engine.resources import CPU, MEMORY, PODS, Vector

_QUEUE_PARTS = ("allocated", "request", "deserved", "inqueue", "capacity", "real_capacity")
_DEVICE_FAMILIES = (
    ("volcano_vgpu_device_memory_limit", "Registered memory of a card"),
    ("volcano_vgpu_device_shared_number", "Shares of a card in use"),
    ("volcano_vgpu_device_allocated_memory", "Memory of a card charged to pods"),
    ("volcano_vgpu_device_allocated_cores", "Cores of a card charged to pods"),
    ("volcano_vgpu_device_memory_allocation_for_a_certain_pod", "Memory of a card charged to one pod"),
    ("volcano_vgpu_device_core_allocation_for_a_certain_pod", "Cores of a card charged to one pod"),
    ("pumice_vgpu_device_pod_memory", "Memory of a card charged to one pod, told apart by namespace"),
    ("pumice_vgpu_device_pod_cores", "Cores of a card charged to one pod, told apart by namespace"),
)


class SchedulerMetrics:
    """Observations of one scheduler, and the page that shows them with the engine's state."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.ready = False
        self.attempts: Counter[str] = Counter({"scheduled": 0, "unschedulable": 0, "error": 0})
        self.bad_configurations = 0
        self.refused_objects = 0
        self.retries: Counter[str] = Counter()
        prefix = "volcano_"
        self.e2e = Histogram(f"{prefix}e2e_scheduling_latency_milliseconds", "Whole cycle", exponential(1, 5000, 20))
        self.open = Histogram(f"{prefix}open_session_duration_milliseconds", "Opening a cycle", exponential(1, 5000, 20))
        self.job = Histogram(
            f"{prefix}e2e_job_scheduling_latency_milliseconds", "Job seen to ready", exponential(100, 120000, 30)
        )
        self.plugin = Histogram(
            f"{prefix}plugin_scheduling_latency_milliseconds", "Plugin hooks", exponential(0.1, 100, 15),
            ("plugin", "OnSession"),
        )  # fmt: skip
        self.action = Histogram(
            f"{prefix}action_scheduling_latency_milliseconds", "Actions", exponential(1, 2000, 20), ("action",)
        )
        self.task = Histogram(
            f"{prefix}task_scheduling_latency_milliseconds", "Pod created to stage", exponential(50, 60000, 30), ("stage",)
        )
        self.stage = Histogram(
            f"{prefix}scheduling_stage_duration_milliseconds", "Duration of a stage", exponential(0.1, 500, 20), ("stage",)
        )
        self._lines: dict[tuple[str, str], tuple[object, tuple[str, ...]]] = {}

    # -- observing ----------------------------------------------------------------------------------------------

    def observe(self, plan: Plan) -> None:
        measures = plan.measures
        self.e2e.observe(measures.total * 1000)
        self.open.observe(measures.open * 1000)
        for action, seconds in measures.actions.items():
            self.action.observe(seconds * 1000, action)
        for (plugin, hook), seconds in measures.plugins.items():
            self.plugin.observe(seconds * 1000, plugin, hook)
        for seconds in measures.jobs:
            self.job.observe(seconds * 1000)
        for seconds in measures.assumed:
            self.task.observe(seconds * 1000, "Assumed")
        self.retries.update(measures.unready)
        self.attempts["scheduled"] += measures.placed
        self.attempts["unschedulable"] += measures.refused

    def bound(self, task: Task | None, now: float) -> None:
        if task is not None and task.created:
            self.task.observe(max(0.0, now - task.created) * 1000, "Bound")

    # -- the page -----------------------------------------------------------------------------------------------

    def page(self) -> bytes:
        lines: list[str] = []
        for histogram in (self.e2e, self.open, self.job, self.plugin, self.action, self.task, self.stage):
            lines.extend(histogram.lines())
        lines.extend(self._counters())
        lines.extend(self._jobs())
        lines.extend(self._queues())
        lines.extend(self._backlog())
        lines.extend(self._cards())
        return ("\n".join(lines) + "\n").encode()

    def _counters(self) -> Iterator[str]:
        results = ({"result": result} for result in self.attempts)
        yield from family("volcano_schedule_attempts_total", "counter", "Placing attempts by result",
                          zip(results, self.attempts.values(), strict=True))  # fmt: skip
        yield from family("volcano_pod_preemption_victims", "gauge", "Victims of the last preemption", [({}, 0)])
        yield from family("volcano_total_preemption_attempts", "counter", "Preemption attempts", [({}, 0)])
        yield from family("volcano_eviction_transactions_total", "counter", "Evictions by action", [])
        yield from family("pumice_bad_configurations_total", "counter", "Configurations refused",
                          [({}, self.bad_configurations)])  # fmt: skip
        problems = self.refused_objects + len(self._engine.state.problems)
        yield from family("pumice_objects_set_aside", "gauge", "Objects with unusable data", [({}, problems)])

    def _jobs(self) -> Iterator[str]:
        state = self._engine.state
        short = [(job, job.min_available - job.ready_count) for job in state.jobs.values() if job.pending]
        short = [(job, count) for job, count in short if count > 0]
        yield from family("volcano_unschedule_task_count", "gauge", "Pods that a gang lacks",
                          (({"job_id": job.key}, count) for job, count in short))  # fmt: skip
        yield from family("volcano_unschedule_job_count", "gauge", "Jobs that cannot be scheduled", [({}, len(short))])
        yield from family("volcano_job_retry_counts", "counter", "Cycles in which a job was not ready",
                          (({"job_id": key}, count) for key, count in self.retries.items() if key in state.jobs))  # fmt: skip
        stood = [job for job in state.jobs.values() if job.scheduled_at and job.group is not None]
        moments: tuple[tuple[str, str, Callable[[Job], float]], ...] = (
            ("duration", "Milliseconds from creation until the gang stood", lambda j: (j.scheduled_at - j.created) * 1000),
            ("start_time", "Creation of a job", lambda j: j.created),
            ("last_time", "When the gang of a job stood", lambda j: j.scheduled_at),
        )
        for name, text, value in moments:
            yield from family(f"volcano_e2e_job_scheduling_{name}", "gauge", text,
                              (({"job_name": j.name, "queue": j.queue.name, "job_namespace": j.namespace}, value(j))
                               for j in stood))  # fmt: skip
        for key in self.retries.keys() - state.jobs.keys():
            del self.retries[key]
        for name in ("share", "weight", "weighted_share"):
            yield from family(f"volcano_namespace_{name}", "gauge", f"{name} of a namespace (not used)", ())
        drf = next((p for p in self._engine.framework.plugins if isinstance(p, Drf)), None)
        shares = [] if drf is None else [job for job in state.jobs.values() if job.group is not None]
        yield from family("volcano_job_share", "gauge", "Dominant share of a job",
                          (({"job_ns": job.namespace, "job_id": job.key}, job.share) for job in shares))  # fmt: skip

    def _queues(self) -> Iterator[str]:
        state = self._engine.state
        plugin = next((p for p in self._engine.framework.plugins if isinstance(p, Proportion)), None)
        queues = [queue for queue in state.queues.values() if queue.present]
        amounts = {queue: _queue_amounts(queue, plugin) for queue in queues}
        for part in _QUEUE_PARTS:
            found = [(queue, amounts[queue].get(part, {})) for queue in queues]
            name = f"volcano_queue_{part}"
            yield from family(f"{name}_milli_cpu", "gauge", f"{part} cpu of a queue",
                              (({"queue_name": q.name}, v.get(CPU, 0)) for q, v in found))  # fmt: skip
            yield from family(f"{name}_memory_bytes", "gauge", f"{part} memory of a queue",
                              (({"queue_name": q.name}, v.get(MEMORY, 0)) for q, v in found))  # fmt: skip
            yield from family(f"{name}_scalar_resources", "gauge", f"{part} of other resources of a queue",
                              (({"queue_name": q.name, "resource": n}, x) for q, v in found for n, x in v.items()
                               if n not in (CPU, MEMORY, PODS)))  # fmt: skip
        yield from family("volcano_queue_weight", "gauge", "Weight", (({"queue_name": q.name}, q.weight) for q in queues))
        if plugin is not None:
            yield from family("volcano_queue_share", "gauge", "Part of what it deserves that a queue uses",
                              (({"queue_name": q.name}, plugin.share(q)) for q in queues))  # fmt: skip
            yield from family("volcano_queue_overused", "gauge", "Whether a queue uses all that it deserves",
                              (({"queue_name": q.name}, int(plugin.overused(q))) for q in queues))  # fmt: skip

    def _backlog(self) -> Iterator[str]:
        """Waiting pods by queue and by why they wait."""
        waiting: Counter[tuple[str, str]] = Counter()
        for job in self._engine.state.jobs.values():
            for task in job.pending.values():
                waiting[job.queue.name, _why_waiting(task)] += 1
        yield from family("pumice_pending_pods", "gauge", "Pods that wait, by queue and reason",
                          (({"queue_name": q, "reason": r}, n) for (q, r), n in sorted(waiting.items())))  # fmt: skip

    def _cards(self) -> Iterator[str]:
        parts: list[list[str]] = [[] for _ in _DEVICE_FAMILIES]
        alive = set()
        for name, book in self._engine.state.ledger.books.items():
            if not name.startswith("nvidia-vgpu"):
                continue
            for node, cards in book.nodes.items():
                alive.add((name, node))
                for into, text in zip(parts, self._node_lines(name, book, cards), strict=True):
                    if text:
                        into.append(text)
        for key in self._lines.keys() - alive:
            del self._lines[key]
        for (name, help_text), texts in zip(_DEVICE_FAMILIES, parts, strict=True):
            yield f"# HELP {name} {help_text}"
            yield f"# TYPE {name} gauge"
            yield from texts

    def _node_lines(self, name: str, family_book: FamilyBook, book: NodeBook) -> tuple[str, ...]:
        kept = self._lines.get((name, book.name))
        stamp = (id(book), book.version)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        keys = self._pod_keys(book)
        columns: list[list[str]] = [[] for _ in _DEVICE_FAMILIES]
        for card, usage in zip(book.inventory.cards, book.usages, strict=True):
            where = f'{{devID="{escape(card.uuid)}",NodeName="{escape(book.name)}"'
            for column, value in enumerate((card.total, usage.shares, usage.memory, usage.cores)):
                columns[column].append(f"{_DEVICE_FAMILIES[column][0]}{where}}} {value}")
            by_name: dict[str, list[int]] = {}  # upstream's labels lack the namespace: equal names share a series (D-43)
            for uid, pieces in usage.holders.items():
                namespace, _, pod_name = keys.get(uid, f"/{uid}").rpartition("/")
                amounts = sum(p.asked for p in pieces), sum(p.cores for p in pieces)
                total = by_name.setdefault(pod_name, [0, 0])
                pod = f'{where},podNamespace="{escape(namespace)}",podName="{escape(pod_name)}"}}'
                for place, amount in enumerate(amounts):
                    total[place] += amount
                    columns[6 + place].append(f"{_DEVICE_FAMILIES[6 + place][0]}{pod} {number(amount)}")
            for pod_name, total in by_name.items():
                for place, amount in enumerate(total):
                    pod = f'{where},podName="{escape(pod_name)}"}}'
                    columns[4 + place].append(f"{_DEVICE_FAMILIES[4 + place][0]}{pod} {number(amount)}")
        lines = tuple("\n".join(column) for column in columns)
        self._lines[name, book.name] = (stamp, lines)
        return lines

    def _pod_keys(self, book: NodeBook) -> dict[str, str]:
        tasks = self._engine.state.tasks
        holders: Iterable[str] = {uid for usage in book.usages for uid in usage.holders}
        return {uid: tasks[uid].key for uid in holders if uid in tasks}


def _queue_amounts(queue: QueueState, plugin: Proportion | None) -> dict[str, Vector]:
    request = dict(queue.allocated)
    for name, value in queue.pending.items():
        request[name] = request.get(name, 0) + value
    found = {"allocated": queue.allocated, "request": request, "inqueue": queue.inqueue, "capacity": queue.capability}
    part = plugin.parts.get(queue) if plugin is not None else None
    if part is not None:
        found.update(deserved=part.deserved, real_capacity=part.cap)
    return found


def _why_waiting(task: Task) -> str:
    if task.gated:
        return "gated"
    job = task.job
    if task.trial is not None:
        return "gang" if task.trial[0] is Status.ALLOCATED else "releasing"
    if job is not None and job.refusal:
        return "queue"
    return "unschedulable" if task.error else "new"
