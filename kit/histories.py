"""Arbitrary histories of a small cluster, as the steps of a hypothesis machine: pods, nodes, and a scheduler whose watch may be
late, repeat itself or break. What must hold after each step is for the tests to say.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from kit.auditor import GROUP
from kit.engine_world import ALL_PLUGINS, World
from kit.objects import group, node, pod
from pumice.engine.state.ledger import Hold
from pumice.families.protocol import Family

Json = dict[str, Any]
NAMES = ("n0", "n1", "n2")


class Events(RuleBasedStateMachine):
    """What happens. ``families`` replaces the configured ones."""

    families: list[Family] | None = None

    @initialize(plain=st.booleans())
    def begin(self, plain: bool) -> None:
        conf = ALL_PLUGINS.replace("  - name: gang\n", "") if plain else ALL_PLUGINS
        self.world = World(conf, families=self.families)
        self.serial = 0
        self.held_back: list[Json] = []
        for name in NAMES[:2]:
            self.world.add(self.make_node(name))

    def make_node(self, name: str) -> Json:
        return node(name, cards=2, mib=8000, shares=3, cpu="8")

    def shapes(self, pick: int) -> dict[str, Any]:
        return [{"mib": 3000}, {"mib": 5000, "cores": 60}, {"cards": 2, "mib": 2000}, {"cards": 1}, {"cpu": "3"}, {}][pick]

    def pod(self, name: str, **parts: Any) -> Json:
        """A pod whose uid does not depend on what other tests made before."""
        made = pod(name, **parts)
        made["metadata"]["uid"] = f"uid-{name}"
        return made

    # -- pods ---------------------------------------------------------------------------------------------------

    @rule(pick=st.integers(0, 5), priority=st.sampled_from([None, 5]))
    def create(self, pick: int, priority: int | None) -> None:
        self.serial += 1
        self.world.add(self.pod(f"p{self.serial}", priority=priority, **self.shapes(pick)))

    @rule(pick=st.integers(0, 4), size=st.integers(2, 4), least=st.integers(1, 4))
    def create_gang(self, pick: int, size: int, least: int) -> None:
        self.serial += 1
        name = f"g{self.serial}"
        self.world.add(group(name, minimum=min(size, least)))
        self.world.add(*(self.pod(f"{name}-{i}", group=name, **self.shapes(pick)) for i in range(size)))

    @rule(pick=st.integers(0, 4), apart=st.booleans(), app=st.sampled_from(["a", "b"]))
    def create_choosy(self, pick: int, apart: bool, app: str) -> None:
        """A pod that wants to be near others, or away from them, on a node or in a zone."""
        self.serial += 1
        kind, where = ("podAntiAffinity", "kubernetes.io/hostname") if apart else ("podAffinity", "zone")
        term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": where}
        affinity = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        self.world.add(self.pod(f"c{self.serial}", labels={"app": "a"}, affinity=affinity, **self.shapes(pick)))

    @rule(pick=st.integers(0, 4), app=st.sampled_from(["a", "b"]))
    def create_labelled(self, pick: int, app: str) -> None:
        self.serial += 1
        self.world.add(self.pod(f"l{self.serial}", labels={"app": app}, **self.shapes(pick)))

    @rule(data=st.data(), app=st.sampled_from(["a", "b", "c"]), cpu=st.sampled_from([None, "1", "2"]))
    def change_in_place(self, data: st.DataObject, app: str, cpu: str | None) -> None:
        """Labels of a pod change, or a running pod is resized."""
        key = self.pick_pod(data)
        if not key:
            return
        self.flush()
        found = self.world.pods[key]
        found["metadata"]["labels"] = {"app": app}
        resources = found["spec"]["containers"][0]["resources"]
        if cpu is not None and "cpu" in resources.get("requests", {}):
            resources["requests"] = resources["limits"] = {**resources["requests"], "cpu": cpu}
        self.world.add(found)

    @rule(data=st.data())
    def eviction_taken_back(self, data: st.DataObject) -> None:
        """A victim is marked and, by its receipt, unmarked again; nothing of it is left."""
        state = self.world.engine.state
        held = sorted(uid for uid, h in state.ledger.holdings.items() if h.state is Hold.CONFIRMED)
        if held:
            before = state.ledger.fingerprint()
            receipts = [state.ledger.terminate(uid) for uid in data.draw(st.lists(st.sampled_from(held), max_size=3))]
            for receipt in reversed(receipts):
                if receipt is not None:
                    state.ledger.undo(receipt)
            assert state.ledger.fingerprint() == before

    @rule(data=st.data(), gone=st.integers(0, 3), new=st.integers(0, 2), pick=st.integers(0, 4))
    def events_are_lost_until_a_relist(self, data: st.DataObject, gone: int, new: int, pick: int) -> None:
        """The watch breaks: pods vanish and come unseen; the list that follows tells of those that are there."""
        self.flush()
        keys = sorted(key for key, obj in self.world.pods.items() if GROUP not in obj["metadata"]["annotations"])
        lost = [self.world.pods.pop(key) for key in data.draw(st.permutations(keys))[:gone]]
        for _ in range(new):
            self.serial += 1
            self.world.store(self.pod(f"p{self.serial}", **self.shapes(pick)))
        self.world.now += 1.5
        self.world.cycle()  # decides on a picture that is out of date
        for obj in lost:
            self.world.forget_pod(obj)
        for obj in list(self.world.pods.values()):
            self.world.tell(obj)

    def pick_pod(self, data: st.DataObject) -> str | None:
        keys = sorted(self.world.pods)
        return data.draw(st.sampled_from(keys)) if keys else None

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        key = self.pick_pod(data)
        if key:
            self.flush()
            self.world.disturbed.add(self.world.pods[key]["metadata"]["annotations"].get(GROUP, ""))
            self.world.remove("Pod", key)

    @rule(data=st.data(), phase=st.sampled_from(["Running", "Succeeded", "Failed"]))
    def advance(self, data: st.DataObject, phase: str) -> None:
        key = self.pick_pod(data)
        if key and self.world.pods[key]["spec"].get("nodeName"):
            self.flush()
            done = self.world.pods[key]["status"]["phase"] in ("Succeeded", "Failed")
            if not done:
                self.world.set_phase(key.partition("/")[2], phase)

    @rule(data=st.data())
    def terminate(self, data: st.DataObject) -> None:
        key = self.pick_pod(data)
        if key:
            self.flush()
            self.world.terminate(key.partition("/")[2])

    # -- nodes --------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def node_comes(self, name: str) -> None:
        self.world.add(self.make_node(name))

    @rule(name=st.sampled_from(NAMES))
    def node_goes(self, name: str) -> None:
        self.world.remove("Node", name)

    @rule(data=st.data(), stranger=st.booleans(), decide=st.booleans())
    def node_flaps(self, data: st.DataObject, stranger: bool, decide: bool) -> None:
        """A node with pods on it goes and comes back; meanwhile another may take its row."""
        held = sorted({str(obj["spec"]["nodeName"]) for obj in self.world.pods.values() if obj["spec"].get("nodeName")}
                      & self.world.nodes.keys())  # fmt: skip
        if not held:
            return
        name = data.draw(st.sampled_from(held))
        back = self.world.nodes[name]
        self.world.remove("Node", name)
        if stranger:
            other = next((n for n in NAMES if n not in self.world.nodes and n != name), "")
            if other:
                self.world.add(self.make_node(other))
        if decide:
            self.cycle()
        self.world.add(back)

    @rule(data=st.data(), gang=st.booleans())
    def another_wants_the_place_of_a_pod_that_goes(self, data: st.DataObject, gang: bool) -> None:
        placed = sorted(key for key, obj in self.world.pods.items() if obj["spec"].get("nodeName"))
        if not placed:
            return
        self.flush()
        going = self.world.pods[data.draw(st.sampled_from(placed))]
        self.world.terminate(going["metadata"]["name"])
        self.serial += 1
        name, resources = f"h{self.serial}", copy.deepcopy(going["spec"]["containers"][0]["resources"])
        if gang:
            self.world.add(group(name, minimum=2))
        for i in range(2 if gang else 1):
            heir = self.pod(f"{name}-{i}", group=name if gang else None)
            heir["spec"]["containers"][0]["resources"] = copy.deepcopy(resources)
            self.world.add(heir)
        self.cycle()

    @rule(name=st.sampled_from(NAMES), cordoned=st.booleans(), label=st.sampled_from(["a", "b"]))
    def node_changes(self, name: str, cordoned: bool, label: str) -> None:
        found = self.world.nodes.get(name)
        if found is not None:
            found["spec"] = {"unschedulable": cordoned}
            found["metadata"]["labels"]["zone"] = label
            self.world.add(found)

    @rule(name=st.sampled_from(NAMES), images=st.lists(st.sampled_from(["busybox:latest", "other:1"]), unique=True),
          size=st.sampled_from([10, 800]))  # fmt: skip
    def images_are_pulled(self, name: str, images: list[str], size: int) -> None:
        found = self.world.nodes.get(name)
        if found is not None:
            found["status"]["images"] = [{"names": [image], "sizeBytes": size << 20} for image in images]
            self.world.add(found)

    @rule(name=st.sampled_from(NAMES))
    def cards_vanish_and_return(self, name: str) -> None:
        """The device plugin restarts: the registration goes and comes back."""
        found = self.world.nodes.get(name)
        if found is not None:
            whole = copy.deepcopy(found)
            found["metadata"]["annotations"] = {}
            self.world.add(found)
            self.world.add(whole)

    # -- the scheduler ------------------------------------------------------------------------------------------

    @rule()
    def cycle(self) -> None:
        self.world.now += 1.5
        self.world.cycle()

    @rule(every=st.integers(1, 3))
    def cycle_with_refused_bindings(self, every: int) -> None:
        count = 0

        def refuse(_: object) -> bool:
            nonlocal count
            count += 1
            return count % every == 0

        # A gang that is refused in part is given up by the daemon; here single pods are enough.
        if any(g["spec"]["minMember"] > 1 for g in self.world.groups.values()):
            return
        self.world.refuse = refuse
        self.world.now += 1.5
        self.world.cycle()
        self.world.refuse = lambda _: False

    @rule()
    def cycle_with_late_watch(self) -> None:
        """Bindings are accepted, but the watch is behind: another cycle must not hand the cards out again."""
        self.world.deliver = False
        before = {key for key, obj in self.world.pods.items() if obj["spec"].get("nodeName")}
        self.world.now += 1.5
        self.world.cycle()
        self.world.now += 1.5
        self.world.cycle()
        self.world.deliver = True
        self.held_back += [obj for key, obj in self.world.pods.items()
                           if obj["spec"].get("nodeName") and key not in before]  # fmt: skip

    @rule(data=st.data())
    def old_event_again(self, data: st.DataObject) -> None:
        """The watch repeats something that is long past."""
        key = self.pick_pod(data)
        if key:
            old = copy.deepcopy(self.world.pods[key])
            if data.draw(st.booleans()):
                old["spec"].pop("nodeName", None)
            old["metadata"].update(resourceVersion="1", labels={"app": "old"})
            old["metadata"].pop("deletionTimestamp", None)
            old["status"]["phase"] = "Pending"
            self.world.tell(old)

    @rule()
    def same_events_again(self) -> None:
        self.flush()
        for obj in [*self.world.nodes.values(), *self.world.pods.values()]:
            self.world.tell(obj)

    @rule()
    def restart(self) -> None:
        self.held_back.clear()
        self.world.engine = self.world.restarted()

    @rule(seconds=st.sampled_from([-3600.0, -5.0, 7200.0]))
    def clock_steps(self, seconds: float) -> None:
        self.world.now += seconds

    def flush(self) -> None:
        for obj in self.held_back:
            if self.world.pods.get(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}") is obj:
                self.world.tell(obj)
        self.held_back.clear()
