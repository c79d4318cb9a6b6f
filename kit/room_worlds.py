"""Clusters in which room is to be made: small random ones, with the answer by trying everything; full ones; and queues under
plugin capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any

from kit.device_world import A100, card
from kit.engine_world import World
from kit.objects import VGPU, budget, group, node, pod, priority_class, queue
from kit.scheduler_confs import conf, sharing
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.state.jobs import Job, Task
from pumice.scheduler.state.tasks import ALLOCATED_STATUSES, Status

Json = dict[str, Any]
Answer = tuple[int, int, int, int, int, int]
"""Broken budgets, highest priority, pods of gangs that fall, sum of priorities with 2**31 each, jobs of several pods without a
minimum that keep none, and parts of the cluster that are freed."""

MIG = {"volcano.sh/vgpu-mode": "mig"}
PODS_A_NODE = 6
APPS = ("a", "b", "c")
CONFORMANCE = "  - name: conformance\n"
PDB = "  - name: pdb\n    enablePreemptable: %s\n"
LARGE: tuple[dict[str, Any], ...] = (
    {"mib": 20000}, {"mib": 35000}, {"cards": 2, "mib": 15000}, {"cards": 1, "mib": 9000, "cores": 60}, {"cpu": "6"},
    {"mib": 9000, "cpu": "5"}, {"cards": 3, "mib": 5000},
)  # fmt: skip


def room_conf(actions: str, *, spares_gangs: str, policy: str = "binpack", more: str = "") -> str:
    """A scheduler.conf that makes room. ``spares_gangs``: whether plugin gang has a say in who is preempted."""
    return conf(["priority", {"gang": {"enablePreemptable": spares_gangs}}, "conformance"],
                ["predicates", sharing("VGPU", SchedulePolicy=policy)], actions=actions) + more  # fmt: skip


def random_world(rng: Random) -> World:
    """One to three nodes, at most six running pods on each, a few of them gangs; nobody waits yet. Budgets guard some pods, with
    a vote or as a cost."""
    spares, policy = rng.choice(("true", "false", "false", "false")), rng.choice(("binpack", "spread"))
    text = room_conf("enqueue, allocate, preempt", spares_gangs=spares, policy=policy)
    votes = rng.choice(("", "", "true", "false"))
    world = World(text.replace(CONFORMANCE, CONFORMANCE + PDB % votes) if votes else text, seed=rng.randrange(10**6))
    world.add(queue("q"), *(priority_class(f"p{value}", value) for value in range(5)))
    if votes:
        world.add(*(budget(app, {"app": app}, rng.choice((0, 1, 1, 2))) for app in rng.sample(APPS, rng.randint(1, 2))))
    nodes = [_node(rng, f"n{number}") for number in range(rng.randint(1, 3))]
    world.add(*nodes)
    left = PODS_A_NODE * len(nodes)
    serial = 0
    while left > 0 and rng.random() < 0.93:
        size = min(left, rng.choice((1, 1, 1, 2, 3)))
        left -= size
        serial += 1
        world.add(*_members(rng, f"r{serial}", size, rng.randrange(4)))
        world.settle(0.5)
        on_nodes = [obj["spec"].get("nodeName") for obj in world.pods.values()]
        if any(on_nodes.count(name) > PODS_A_NODE for name in world.nodes):
            break
    for obj in list(world.pods.values()):
        if obj["spec"].get("nodeName"):
            world.set_phase(obj["metadata"]["name"], "Running")
        else:
            world.delete_pod(obj["metadata"]["name"])
    for key in [key for key in world.groups if not any(_group_of(obj) == key for obj in world.pods.values())]:
        world.remove("PodGroup", key)
    world.settle(0.5)
    return world


def claimants(rng: Random, *, gang: bool = False) -> list[Json]:
    """One pod, or a gang of two or three, of middling importance."""
    return _members(rng, "claimant", rng.choice((2, 3)) if gang else 1, rng.randint(2, 4), large=True)


def _members(rng: Random, name: str, size: int, priority: int, *, large: bool = False) -> list[Json]:
    shape = rng.choice(LARGE) if large else _shape(rng)
    annotations = MIG if "mib" in shape and rng.random() < 0.4 else {}
    if rng.random() < 0.1:
        annotations = {**annotations, "volcano.sh/preemptable": "false"}
    minds = minding(rng)
    if size == 1:
        return [minds(pod(name, queue="q", priority=priority, annotations=annotations, **shape))]
    minimum = size if name == "claimant" else rng.randint(1, size)
    made = group(name, minimum=minimum, queue="q", priority_class=f"p{priority}")
    members = (pod(f"{name}-w-{number}", group=name, annotations=annotations, **shape) for number in range(size))
    return [made, *map(minds, members)]


def minding(rng: Random) -> Callable[[Json], Json]:
    """Return the constraints of pods alike beside room: others near them, host ports, an even spread, and tolerations."""
    labels = {"app": rng.choice(APPS)}
    others = [{"labelSelector": {"matchLabels": {"app": rng.choice(APPS)}}, "topologyKey": "kubernetes.io/hostname"}]
    more: Json = {}
    match rng.randrange(16):
        case 0 | 1:
            more["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": others}}
        case 2:
            more["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": others}}
        case 3:
            more["topologySpreadConstraints"] = [
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                 "labelSelector": {"matchLabels": labels}},
            ]  # fmt: skip
    ports = [{"containerPort": 80, "hostPort": rng.choice((80, 80, 81))}] if rng.random() < 0.12 else []
    tolerates = [{"key": "dedicated", "operator": "Exists"}] if rng.random() < 0.7 else []

    def with_them(made: Json) -> Json:
        made["metadata"]["labels"] |= labels
        made["spec"] |= {**more, "tolerations": tolerates}
        made["spec"]["containers"][0]["ports"] = ports
        return made

    return with_them


def _shape(rng: Random) -> dict[str, Any]:
    found: dict[str, Any] = rng.choice((
        {"mib": 9000}, {"mib": 18000}, {"mib": 35000}, {"cards": 2, "mib": 15000}, {"cards": 1, "mib": 4000, "cores": 60}, {},
    ))  # fmt: skip
    return {**found, "cpu": rng.choice(("1", "2", "5"))} if not found or rng.random() < 0.5 else found


def _node(rng: Random, name: str) -> Json:
    cards = rng.randint(1, 3)
    modes = [rng.choice(("hami-core", "hami-core", "mig")) for _ in range(cards)]
    register = "".join(f"GPU-{name}-{number},10,40960,{A100},true,{mode}:" for number, mode in enumerate(modes))
    taints = [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}] if rng.random() < 0.15 else []
    made = node(name, cpu=str(rng.randint(4, 9)), register=register, taints=taints, labels={"kubernetes.io/hostname": name})
    for key, each in (("number", 10), ("memory", 40960), ("cores", 100)):
        made["status"]["allocatable"][f"{VGPU}-{key}"] = str(each * cards)
    return made


def _group_of(obj: Json) -> str:
    return f"default/{obj['metadata']['annotations'].get('scheduling.k8s.io/group-name', '')}"


# -- the answer by trying everything --------------------------------------------------------------------------------------


@dataclass
class Everything:
    """All sets of pods of one node, with what falls with them."""

    world: World
    cycle: Cycle
    claimant: Task

    def answers(self) -> Iterator[Answer]:
        """Return the cost of every set of victims that makes room and that the plugins agree to."""
        state = self.cycle.state
        for name in state.ledger.table.row_of:
            tasks = [
                task
                for uid in state.ledger.by_node.get(name, {})
                if (task := state.tasks.get(uid)) and self._requested(task)
            ]
            for size in range(1, len(tasks) + 1):
                for some in combinations(tasks, size):
                    found = self._answer(name, some)
                    if found is not None:
                        yield found

    def makes_room(self, node: str, pods: Sequence[Task]) -> bool:
        statement = self.cycle.statement()
        gone = all(statement.evict(pod, "trial") for pod in pods)
        fits = gone and self.cycle.placer.choose_future(self.claimant.cls, node) is not None
        statement.rollback()
        return fits

    def _requested(self, task: Task) -> bool:
        assert self.claimant.job is not None
        assert task.job is not None
        other = task.job is not self.claimant.job and task.job.queue is self.claimant.job.queue
        return other and task.status in (Status.BOUND, Status.RUNNING) and task.yielding.preemptable

    def _answer(self, node: str, some: Sequence[Task]) -> Answer | None:
        pods, fallen = list(some), 0
        for job in {task.job: None for task in some}:
            assert job is not None
            own, placed = [task for task in some if task.job is job], self._placed(job)
            if job.min_available > 1 and len(own) > job.ready_count - job.min_available:
                if not all(self._requested(task) for task in placed):
                    return None
                pods += [task for task in placed if task not in own]
                fallen += len(placed)
        pods.sort(key=lambda task: (task.job.priority if task.job else 0, task.priority, -task.created, task.uid))
        framework = self.cycle.framework
        if framework.not_preemptable(self.claimant, pods) or not self.makes_room(node, pods):
            return None
        ranks = [task.job.priority for task in pods if task.job is not None]
        total = self.cycle.state.ledger.table.total
        freed = sum(
            amount * 10**6 // total[name]
            for task in pods for name, amount in task.amounts.items() if name != "pods" and total.get(name, 0) > 0
        )
        jobs = {task.job: None for task in pods if task.job is not None}
        emptied = sum(
            job.min_available <= 1 < len(job.tasks) and all(task in pods for task in self._placed(job)) for job in jobs
        )
        minded = any(plugin.name == "pdb" for plugin in framework.plugins)
        broken = len(self.cycle.state.budgets.spared(pods)) if minded else 0
        return broken, max(ranks), fallen, sum(rank + 2**31 for rank in ranks), emptied, freed

    def _placed(self, job: Job) -> list[Task]:
        return [task for task in job.tasks.values() if task.status in ALLOCATED_STATUSES]


def running_cycle(world: World) -> Cycle:
    return world.engine.open_cycle(world.now, plugins=True)


# -- Clusters that are full, and configurations by which room is made in them


ACTIONS = "enqueue, allocate, preempt, reclaim, backfill"
WHOLE_GANGS = room_conf(ACTIONS, spares_gangs="true", more="  - name: nodeorder\n")
"""Gangs never fall under their minimum (and a pod of its own is a gang of one)."""
BUNDLES = room_conf(ACTIONS, spares_gangs="false", more="  - name: nodeorder\n")
"""As upstream's default: plugin gang has no say in who is preempted."""
SHARES = conf(["priority", {"gang": {"enableReclaimable": False}}, "conformance"], ["predicates", "%s"],
              actions="enqueue, allocate, reclaim, backfill")
"""Queues get their shares back, by the plugin that is put in."""


def full(world: World, *objects: Json) -> World:
    """Everything that comes runs."""
    world.add(*objects)
    world.settle(2)
    run(world)
    return world


def run(world: World) -> None:
    for obj in list(world.pods.values()):
        if obj["spec"].get("nodeName") and obj["status"].get("phase") == "Pending":
            world.set_phase(obj["metadata"]["name"], "Running", obj["metadata"]["namespace"])


def gone(world: World) -> set[str]:
    return {effect.name for effect in world.evictions}


def gang(name: str, size: int, minimum: int | None = None, *, priority: str = "", cards: int = 1, **spec: Any) -> Iterable[Json]:
    yield group(name, minimum=size if minimum is None else minimum, priority_class=priority)
    yield from (pod(f"{name}-w-{i}", group=name, cards=cards, mib=8000, **spec) for i in range(size))




def mig_node(name: str, cards: int = 1, *, places: bool = False) -> Json:
    """``places``: its plugin says that it cuts slices anywhere."""
    register = "".join(card(f"GPU-{name}-{at}", 40960, kind=A100, mode="mig", places=places) for at in range(cards))
    return node(name, cards=cards, mib=40960, register=register)


def one_card(conf: str = BUNDLES) -> World:
    return full(World(conf), node("n1", cards=1, mib=8000), pod("low", mib=8000, priority=1))


# -- Worlds whose queues stand under plugin capacity


GPU = "nvidia.com/gpu"


def capacity(*plugins: str, tree: bool = True, actions: str = "enqueue, allocate, backfill", **arguments: Any) -> str:
    """A configuration with plugin capacity after those named."""
    lines = [f'actions: "{actions}"', "tiers:", "- plugins:", *(f"  - name: {name}" for name in plugins), "  - name: capacity"]
    lines += ["    enableHierarchy: true"] if tree else []
    if arguments:
        lines += ["    arguments:", *(f"      {name}: {value}" for name, value in arguments.items())]
    return "\n".join([*lines, "  - name: predicates"]) + "\n"


def gpus(name: str, at: str, count: int = 1, **more: Any) -> Json:
    return pod(name, queue=at, limits={GPU: str(count)}, **more)


def cluster(*objects: Json, conf: str | None = None, of: int = 8) -> World:
    world = World(conf or capacity("gang"))
    world.add(queue("root"), node("n1", extra={GPU: str(of)}), *objects)
    world.settle()
    return world


def running(world: World) -> dict[str, int]:
    """Pods that have a node, by queue."""
    found: dict[str, int] = {}
    for name, where in world.placements().items():
        found[name[0]] = found.get(name[0], 0) + bool(where)
    return found


def departments(**more: Any) -> list[Json]:
    """Two departments: x with teams a and b, y with team c."""
    return [
        queue("x", deserved={GPU: "4"}, **more), queue("y", deserved={GPU: "4"}),
        queue("a", parent="x", deserved={GPU: "2"}), queue("b", parent="x", deserved={GPU: "2"}),
        queue("c", parent="y", deserved={GPU: "4"}),
    ]  # fmt: skip
