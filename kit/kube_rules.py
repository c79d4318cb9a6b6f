"""Kubernetes' rules about where a pod may run, read from the API objects alone: nothing of Pumice is imported here on purpose.

``forbids`` names each rule by which a node refuses a pod: room, cordon, taints, node affinity, host ports, pod affinity and
anti-affinity in both directions, hard topology spread, volumes that are bound to a place. It is a second reading, plain and
slow, of what kube-scheduler's filters say (kubernetes/pkg/scheduler/framework/plugins), for judging a scheduler from outside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from pumice.audit.amounts import Amounts, Json, done, quantity, requests

Tables = Mapping[str, Mapping[str, Json]]
"""Objects by kind and key (namespace/name, or the name)."""

UNSCHEDULABLE: Json = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
PREEMPTABLE = "volcano.sh/preemptable"
"""Annotation: false keeps the pod where it is when room is made for others."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def leaving(pod: Json) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def bound(pods: Iterable[Json]) -> dict[str, list[Json]]:
    """The pods that count on each node, by the node's name."""
    found: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        if pod["spec"].get("nodeName") and not done(pod):
            found[pod["spec"]["nodeName"]].append(pod)
    return found


# -- room -----------------------------------------------------------------------------------------------------------


def ordinary(name: str) -> bool:
    """Return whether the scheduler counts this resource itself; cards are counted one by one (``card_rules``)."""
    return not name.startswith("volcano.sh/")


def counted(name: str) -> bool:
    """Return whether a node has so much of it and the kubelet admits no pod beyond that: every resource, also what a plugin
    advertises
    of its cards (a pod counts where it stands, even if the card that it holds is gone). A percentage only tells how much."""
    return not name.endswith("-percentage")


def lacks(pod: Json, node: Json, others: Iterable[Json]) -> list[str]:
    """Resources of which the node has too little left beside these pods."""
    wanted = Counter({name: value for name, value in requests(pod).items() if value > 0 and counted(name)})
    used: Amounts = Counter()
    number = 0
    for other in others:
        used.update(requests(other))
        number += 1
    have = node.get("status", {}).get("allocatable", {})
    found = [name for name, value in wanted.items() if used[name] + value > quantity(have.get(name, 0))]
    return [*found, *(["pods"] if number + 1 > quantity(have.get("pods", 0)) else [])]


# -- labels ---------------------------------------------------------------------------------------------------------


def selects(selector: Json | None, labels: Json) -> bool:
    """A LabelSelector: one that is absent selects nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = [{"key": k, "operator": "In", "values": [v]} for k, v in selector.get("matchLabels", {}).items()]
    return all(_holds(e, labels.get(e["key"])) for e in (*wanted, *selector.get("matchExpressions", ())))


def _holds(expression: Json, value: str | None) -> bool:
    values = expression.get("values", ())
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdecimal() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.isdecimal() and int(value) < int(values[0])
    return False


def node_selected(pod: Json, node: Json) -> bool:
    """nodeSelector and required node affinity."""
    spec, labels = pod["spec"], node["metadata"].get("labels", {})
    if any(labels.get(k) != v for k, v in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED)
    return selects_node(required, node)


def selects_node(selector: Json | None, node: Json) -> bool:
    """Return whether a node selector takes the node; none takes all."""
    return selector is None or any(_term_selects(term, node) for term in selector.get("nodeSelectorTerms", ()))


def _term_selects(term: Json, node: Json) -> bool:
    labels, name = node["metadata"].get("labels", {}), node["metadata"]["name"]
    expressions, fields = term.get("matchExpressions", ()), term.get("matchFields", ())
    return bool(expressions or fields) and all(
        [*(_holds(e, labels.get(e["key"])) for e in expressions), *(_holds(e, name) for e in fields)])  # fmt: skip


def untolerated(pod: Json, node: Json) -> list[str]:
    """Taints (and the cordon) that keep the pod away."""
    taints = [t for t in node.get("spec", {}).get("taints", ()) if t["effect"] in ("NoSchedule", "NoExecute")]
    if node.get("spec", {}).get("unschedulable"):
        taints.append(UNSCHEDULABLE)
    return [t["key"] for t in taints if not any(_tolerates(o, t) for o in pod["spec"].get("tolerations", ()))]


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


# -- ports ----------------------------------------------------------------------------------------------------------


def _ports(pod: Json) -> list[tuple[str, str, int]]:
    sidecars = [c for c in pod["spec"].get("initContainers", ()) if c.get("restartPolicy") == "Always"]
    return [(port.get("hostIP") or "0.0.0.0", port.get("protocol", "TCP"), port["hostPort"])
            for container in (*pod["spec"].get("containers", ()), *sidecars)
            for port in container.get("ports", ()) if port.get("hostPort")]  # fmt: skip


def port_taken(pod: Json, others: Iterable[Json]) -> bool:
    mine = _ports(pod)
    return bool(mine) and any(
        port == number and protocol == other_protocol and (address == where or "0.0.0.0" in (address, where))
        for address, protocol, port in mine for other in others for where, other_protocol, number in _ports(other)
    )  # fmt: skip


# -- other pods -----------------------------------------------------------------------------------------------------


def terms(pod: Json, kind: str) -> list[Json]:
    """Required terms of ``podAffinity`` or ``podAntiAffinity``."""
    return list(pod["spec"].get("affinity", {}).get(kind, {}).get(REQUIRED, ()))


def term_selects(term: Json, owner: Json, pod: Json, namespaces: Mapping[str, Json]) -> bool:
    """Return whether a term of ``owner`` means that pod."""
    space = pod["metadata"].get("namespace", "")
    named, chosen = term.get("namespaces", ()), term.get("namespaceSelector")
    inside = space in named or (not named and chosen is None and space == owner["metadata"].get("namespace", ""))
    if not inside and chosen is not None:
        inside = selects(chosen, namespaces.get(space, {}).get("metadata", {}).get("labels", {}))
    selector, labels = term.get("labelSelector"), owner["metadata"].get("labels", {})
    more = [{"key": key, "operator": operator, "values": [labels[key]]}
            for operator, name in (("In", "matchLabelKeys"), ("NotIn", "mismatchLabelKeys"))
            for key in term.get(name, ()) if key in labels]  # fmt: skip
    if selector is not None and more:
        selector = {**selector, "matchExpressions": [*selector.get("matchExpressions", ()), *more]}
    return inside and selects(selector, pod["metadata"].get("labels", {}))


class Cluster:
    """One moment of a cluster: who stands where. Objects are values; ``bind`` answers for the next moment."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.nodes = tables["Node"]
        self.namespaces = tables.get("Namespace", {})
        self.placed = bound(tables["Pod"].values())
        self.choosy = [p for pods in self.placed.values() for p in pods if terms(p, "podAntiAffinity")]
        """Placed pods that refuse to be near others."""

    def total(self) -> Amounts:
        """Return the sum over all nodes."""
        found: Amounts = Counter()
        for node in self.nodes.values():
            for what, value in node.get("status", {}).get("allocatable", {}).items():
                found[what] += quantity(value)  # type: ignore[assignment]
        return found

    def bind(self, pod: Json, node: str) -> None:
        placed = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        self.placed[node].append(placed)
        if terms(placed, "podAntiAffinity"):
            self.choosy.append(placed)

    def _label(self, node: str, key: str) -> str | None:
        found = self.nodes.get(node)
        value: str | None = found["metadata"].get("labels", {}).get(key) if found is not None else None
        return value

    def _domain(self, node: str, key: str) -> Iterator[Json]:
        """Pods on the nodes that share this node's value of that label."""
        value = self._label(node, key)
        if value is not None:
            for name, pods in self.placed.items():
                if self._label(name, key) == value:
                    yield from pods

    def forbids(self, pod: Json, name: str) -> list[str]:
        """Every rule by which that node refuses the pod; empty when it may run there."""
        node = self.nodes.get(name)
        if node is None:
            return ["there is no such node"]
        here = self.placed.get(name, [])
        found = [f"too little {what}" for what in lacks(pod, node, here)]
        found += [f"taint {key}" for key in untolerated(pod, node)]
        if not node_selected(pod, node):
            found.append("node affinity")
        if port_taken(pod, here):
            found.append("host port")
        if any(term_selects(term, other, pod, self.namespaces) and self._together(name, other, term)
               for other in self.choosy for term in terms(other, "podAntiAffinity")):  # fmt: skip
            found.append("a pod there refuses it")
        if any(term_selects(term, pod, other, self.namespaces)
               for term in terms(pod, "podAntiAffinity") for other in self._domain(name, term["topologyKey"])):  # fmt: skip
            found.append("it refuses a pod there")
        if not self._near(pod, name):
            found.append("pod affinity")
        found += [f"spread over {rule['topologyKey']}" for rule in _hard(pod) if not self._even(pod, name, rule)]
        found += self._volumes(pod, node)
        return found

    def _together(self, name: str, other: Json, term: Json) -> bool:
        value = self._label(name, term["topologyKey"])
        return value is not None and self._label(other["spec"]["nodeName"], term["topologyKey"]) == value

    def _near(self, pod: Json, name: str) -> bool:
        """Required pod affinity: who meets all terms is in each term's domain, or is nowhere and the pod meets its own."""
        wanted = terms(pod, "podAffinity")
        if not wanted:
            return True
        if any(self._label(name, term["topologyKey"]) is None for term in wanted):
            return False

        def meets(other: Json) -> bool:
            return all(term_selects(term, pod, other, self.namespaces) for term in wanted)

        if all(any(meets(other) for other in self._domain(name, term["topologyKey"])) for term in wanted):
            return True
        # Only pods that stand where the topology is known count (podsWithAffinity of the pre-filter).
        anywhere = any(meets(other) and any(self._label(at, term["topologyKey"]) is not None for term in wanted)
                       for at, pods in self.placed.items() for other in pods)  # fmt: skip
        return not anywhere and meets(pod)

    def _even(self, pod: Json, name: str, rule: Json) -> bool:
        """One DoNotSchedule rule. Pods that are leaving do not count; nor do nodes that the pod's own affinity leaves out."""
        key = rule["topologyKey"]
        mine = self._label(name, key)
        if mine is None:
            return False
        keys = [other["topologyKey"] for other in _hard(pod)]
        sums: Counter[str] = Counter()
        for at, node in self.nodes.items():
            labels = node["metadata"].get("labels", {})
            if any(other not in labels for other in keys):
                continue
            if rule.get("nodeAffinityPolicy", "Honor") == "Honor" and not node_selected(pod, node):
                continue
            if rule.get("nodeTaintsPolicy", "Ignore") == "Honor" and untolerated(pod, node):
                continue
            sums[labels[key]] += sum(self._counts(rule, pod, other) for other in self.placed.get(at, ()))
        least = min(sums.values(), default=0) if len(sums) >= rule.get("minDomains", 1) else 0
        return sums[mine] + self._counts(rule, pod, pod) - least <= rule["maxSkew"]

    def _counts(self, rule: Json, owner: Json, pod: Json) -> bool:
        term = {"labelSelector": rule.get("labelSelector"), "matchLabelKeys": rule.get("matchLabelKeys", ())}
        return not leaving(pod) and term_selects(term, owner, pod, {})

    def _volumes(self, pod: Json, node: Json) -> list[str]:
        """Claims that are bound to a volume of another place, or not there at all."""
        found = []
        for volume in pod["spec"].get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            if name is None:
                continue
            claim = self.tables.get("PersistentVolumeClaim", {}).get(f"{pod['metadata']['namespace']}/{name}")
            bound_to = claim["spec"].get("volumeName") if claim is not None else None
            held = self.tables.get("PersistentVolume", {}).get(bound_to) if bound_to else None
            if held is None:
                found.append(f"claim {name} has no volume")
                continue
            required = held["spec"].get("nodeAffinity", {}).get("required")
            if required is not None and not any(_term_selects(term, node) for term in required["nodeSelectorTerms"]):
                found.append(f"the volume of claim {name} is elsewhere")
        return found


def _hard(pod: Json) -> list[Json]:
    return [rule for rule in pod["spec"].get("topologySpreadConstraints", ())
            if rule.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]  # fmt: skip
