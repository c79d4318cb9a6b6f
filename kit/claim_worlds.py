"""Small random worlds of claims: slices, classes, what is in use, and a pod's claims. The objects are those of the API server."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

A, B = "a.example.com", "b.example.com"
NODE = "n1"
Seen = dict[str, Any]
"""A device, with its driver under ``driver``."""


class Throws(Exception):
    """The expression does, for this device."""


def _own(device: Seen, name: str, driver: str = A) -> Any:
    """An attribute as ``device.attributes[driver].name`` finds it."""
    full = device.get("attributes", {}).get(f"{driver}/{name}")
    found = full if full is not None else device.get("attributes", {}).get(name) if device["driver"] == driver else None
    if found is None:
        raise Throws
    return next(iter(found.values()))


def _maybe(device: Seen, name: str, driver: str = A) -> Any:
    try:
        return _own(device, name, driver)
    except Throws:
        return None


def _version(device: Seen) -> tuple[int, ...]:
    return tuple(map(int, _own(device, "fw").split(".")))


def _memory(device: Seen) -> int:
    if device["driver"] != A or "memory" not in device.get("capacity", {}):
        raise Throws
    return int(device["capacity"]["memory"]["value"])


SELECTORS: dict[str, Callable[[Seen], bool]] = {
    f'device.driver == "{A}"': lambda one: one["driver"] == A,
    "device.driver.endsWith('.example.com')": lambda one: True,
    f'"model" in device.attributes["{A}"] && device.attributes["{A}"].model == "x"': lambda one: _maybe(one, "model") == "x",
    f'device.attributes["{A}"].?model.orValue("z") != "x"': lambda one: _maybe(one, "model") != "x",
    "cel.bind(own, device.attributes[device.driver], has(own.model) && own.model in ['x', 'y'])":
        lambda one: _maybe(one, "model", one["driver"]) in ("x", "y"),
    f'device.attributes["{A}"].model == "x"': lambda one: _own(one, "model") == "x",
    f'device.attributes["{A}"].fw.isLessThan(semver("1.10.0"))': lambda one: _version(one) < (1, 10, 0),
    f'has(device.capacity["{A}"].memory) && device.capacity["{A}"].memory.compareTo(quantity("6")) >= 0':
        lambda one: "memory" in one.get("capacity", {}) and one["driver"] == A and _memory(one) >= 6,
    f'device.capacity["{A}"].memory.isGreaterThan(quantity("3"))': lambda one: _memory(one) > 3,
    "device.allowMultipleAllocations": lambda one: bool(one.get("allowMultipleAllocations")),
}  # fmt: skip
"""Expressions and what they come to, told without an evaluator."""
_SAFE = list(SELECTORS)[:5]
_ATTRIBUTES = ("model", "fw", "rack", "uuid")


class World:
    """A case by its seed. ``plain``: nothing in it that Kubernetes 1.36.1 is known to get wrong."""

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        self.rng, self.plain = Random(f"{seed}/{plain}"), plain
        self.slices: list[dict[str, Any]] = []
        for pool in range(self.rng.choice((1, 1, 2, 2, 3))):
            self._pool(pool)
        self.in_use = self._in_use()
        self.seen = self.slices
        if not plain and self._one_in(8):
            self.slices = self._without_one()
        self.classes = [self._class("gpu"), self._class("any", selects=False)]
        self.claims = [self._claim(at) for at in range(self.rng.choice((1, 1, 1, 2)))]
        self.node = {"metadata": {"name": NODE, "labels": {"zone": "z1"}}}

    @property
    def question(self) -> dict[str, Any]:
        """Return the question to Kubernetes' allocator."""
        return {"node": self.node, "slices": self.slices, "classes": self.classes, "claims": self.claims, "inUse": self.in_use}

    def _one_in(self, many: int) -> bool:
        return self.rng.randrange(many) == 0

    # -- slices ---------------------------------------------------------------------------------------------------

    def _pool(self, at: int) -> None:
        driver = self.rng.choice((A, A, B))
        if self.plain and any(one["spec"]["driver"] != driver for one in self.slices):
            name = f"p{at}"
        else:
            name = self.rng.choice((NODE, f"p{at}"))
        if any((one["spec"]["driver"], one["spec"]["pool"]["name"]) == (driver, name) for one in self.slices):
            name = f"p{at}"
        where = self.rng.choice(("node", "node", "node", "all", "selector", "device"))
        sets = [f"set{one}" for one in range(self.rng.choice((1, 1, 2)))] if self.rng.random() < 0.5 else []
        sizes = {name: {"memory": {"value": str(self.rng.randint(4, 8))}, "slices": {"value": "4"}} for name in sets}
        devices = [self._device(f"d{number}", sets, where) for number in range(self.rng.randint(1, 4))]
        parts = [devices[: len(devices) // 2], devices[len(devices) // 2 :]] if self._one_in(3) else [devices]
        specs = [{"devices": part} for part in parts]
        if sets:
            specs.append({"sharedCounters": [{"name": name, "counters": sizes[name]} for name in sets]})
        generation, count = self.rng.randint(1, 3), len(specs) + self._one_in(12)
        if self._one_in(12):
            specs[0]["devices"].append(dict(devices[-1]))  # two of one name
        for number, spec in enumerate(specs):
            self._slice(f"{at}-{number}", driver, name, generation, count, spec, where)
        if self._one_in(6):  # left from before
            self._slice(f"{at}-old", driver, name, generation - 1, 1, {"devices": [self._device("gone", [], where)]}, where)

    def _slice(self, name: str, driver: str, pool: str, generation: int, count: int, spec: dict[str, Any], where: str) -> None:
        ways = {"node": {"nodeName": NODE}, "all": {"allNodes": True}, "device": {"perDeviceNodeSelection": True},
                "selector": {"nodeSelector": self._selector()}}  # fmt: skip
        whole = {"driver": driver, "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}
        self.slices.append({"metadata": {"name": name}, "spec": {**whole, **ways[where], **spec}})

    def _selector(self) -> dict[str, Any]:
        zone = self.rng.choice(("z1", "z1", "z1", "z2"))
        return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}

    def _device(self, name: str, sets: list[str], where: str) -> dict[str, Any]:
        rng = self.rng
        device: dict[str, Any] = {"name": name, "attributes": {
            "model": {"string": rng.choice("xy")}, "fw": {"version": rng.choice(("1.2.3", "1.10.1"))},
            "rack": {"int": rng.randint(1, 2)}, "uuid": {"string": f"u{rng.randint(1, 6)}"},
        }}  # fmt: skip
        if self._one_in(6):
            device["attributes"].pop(rng.choice(_ATTRIBUTES))
        shared = rng.random() < 0.5
        capacity = {name: {"value": str(rng.randint(3, 9))} for name in ("memory", "cores") if rng.random() < 0.8}
        if shared:
            device["allowMultipleAllocations"] = True
            for one in capacity.values():
                self._policy(one)
        device["capacity"] = capacity
        if sets and rng.random() < 0.8 and not (shared and self.plain):
            amounts = {"memory": {"value": str(rng.randint(1, 4))}, "slices": {"value": str(rng.randint(0, 2))}}
            device["consumesCounters"] = [{"counterSet": rng.choice(sets), "counters": amounts}]
        if self._one_in(6):
            effect = rng.choice(("NoSchedule", "NoExecute", "None"))
            device["taints"] = [{"key": "sick", "value": "yes", "effect": effect}]
        if self._one_in(10):
            device["bindingConditions"], device["bindingFailureConditions"] = ["ready"], ["broken"]
        if where == "device":
            other = {"nodeName": "n2"} if self._one_in(4) else {"nodeSelector": self._selector()} if self._one_in(3) else {}
            device.update(other or rng.choice(({"nodeName": NODE}, {"allNodes": True})))
        return device

    def _policy(self, capacity: dict[str, Any]) -> None:
        value = int(capacity["value"])
        match self.rng.randrange(5):
            case 0:
                capacity["requestPolicy"] = {"default": str(self.rng.randint(1, value))}
            case 1:
                capacity["requestPolicy"] = {"default": "2", "validValues": [str(one) for one in (1, 2, 3)]}
            case 2:
                capacity["requestPolicy"] = {"default": "1", "validRange": {"min": "1", "max": str(value), "step": "1"}}
            case 3:
                span = {"min": "1", "step": "500m" if not self.plain and self._one_in(4) else "2"}
                capacity["requestPolicy"] = {"default": "1", "validRange": span}

    # -- what is in use -------------------------------------------------------------------------------------------

    def _in_use(self) -> list[dict[str, Any]]:
        """Claims of others, within the counters and capacities that there are."""
        free = {(*_pool_of(one), name, counter): int(amount["value"])
                for one in self.slices for set_ in one["spec"].get("sharedCounters", ())
                for name, counters in [(set_["name"], set_["counters"])] for counter, amount in counters.items()}  # fmt: skip
        claims, names = [], set()
        for one in self.slices:
            for device in one["spec"].get("devices", ()):
                key = (*_pool_of(one), device["name"])
                draws = {(*_pool_of(one), part["counterSet"], name): int(amount["value"])
                         for part in device.get("consumesCounters", ()) for name, amount in part["counters"].items()}  # fmt: skip
                shared = device.get("allowMultipleAllocations", False)
                if key in names or not self._one_in(4) or (self.plain and shared and draws):
                    continue
                if any(free.get(counter, 0) < amount for counter, amount in draws.items()):
                    continue
                for counter, amount in draws.items():
                    free[counter] -= amount
                names.add(key)
                claims += [self._holder(key, device, shared) for _ in range(2 if shared and self._one_in(2) else 1)]
        return claims

    def _holder(self, key: tuple[str, str, str], device: dict[str, Any], shared: bool) -> dict[str, Any]:
        result: dict[str, Any] = {"request": "r", "driver": key[0], "pool": key[1], "device": key[2]}
        if shared:
            result["shareID"] = f"share-{self.rng.randrange(10**9)}"
            result["consumedCapacity"] = dict.fromkeys(device["capacity"], "1")
        return {"metadata": {"name": "other", "namespace": "x"}, "spec": {"devices": {}},
                "status": {"allocation": {"devices": {"results": [result]}}}}  # fmt: skip

    def _without_one(self) -> list[dict[str, Any]]:
        """The slices without one of the devices in use."""
        if not self.in_use:
            return self.slices
        gone = self.rng.choice(self.in_use)["status"]["allocation"]["devices"]["results"][0]
        found = []
        for one in self.slices:
            devices = one["spec"].get("devices")
            if devices is not None and _pool_of(one) == (gone["driver"], gone["pool"]):
                left = [device for device in devices if device["name"] != gone["device"]]
                one = {**one, "spec": {**one["spec"], "devices": left}}
            found.append(one)
        return found

    # -- what is asked --------------------------------------------------------------------------------------------

    def _class(self, name: str, *, selects: bool = True) -> dict[str, Any]:
        spec: dict[str, Any] = {"config": [{"opaque": {"driver": A, "parameters": {"of": name}}}]} if selects else {}
        if selects and self.rng.random() < 0.5:
            spec["selectors"] = [{"cel": {"expression": self.rng.choice(_SAFE)}}]
        return {"metadata": {"name": name}, "spec": spec}

    def _claim(self, at: int) -> dict[str, Any]:
        requests = [self._request(f"r{number}") for number in range(self.rng.choice((1, 1, 2, 2, 3)))]
        devices: dict[str, Any] = {"requests": requests}
        counted = any(one.get("exactly", {}).get("count", 1) > 1 or "All" in str(one) for one in requests) or any(
            part.get("count", 1) > 1 for one in requests for part in one.get("firstAvailable", ())
        )
        if self._one_in(3):
            kind = "matchAttribute" if self.plain and counted else self.rng.choice(("matchAttribute", "distinctAttribute"))
            constraint = {kind: f"{A}/{self.rng.choice(_ATTRIBUTES)}"}
            if self._one_in(2):
                constraint["requests"] = [self.rng.choice(requests)["name"]]
            if not (self.plain and ("All" in str(requests) or self._counters_are_drawn())):
                devices["constraints"] = [constraint]
        if self._one_in(3):
            devices["config"] = [{"requests": ["r0"], "opaque": {"driver": A, "parameters": {"of": "claim"}}}]
        return {"metadata": {"name": f"c{at}", "namespace": "x"}, "spec": {"devices": devices}}

    def _counters_are_drawn(self) -> bool:
        return any("sharedCounters" in one["spec"] for one in self.slices)

    def _request(self, name: str) -> dict[str, Any]:
        if self._one_in(4):
            return {"name": name, "firstAvailable": [{"name": f"s{at}", **self._ask(admin=False)} for at in range(2)]}
        return {"name": name, "exactly": self._ask(admin=not self.plain)}

    def _ask(self, *, admin: bool) -> dict[str, Any]:
        rng = self.rng
        ask: dict[str, Any] = {"deviceClassName": rng.choice(("gpu", "any")), "allocationMode": "ExactCount", "count": 1}
        if self._one_in(4):
            ask["count"] = rng.randint(2, 3)
        shared = any(device.get("allowMultipleAllocations") for one in self.slices for device in one["spec"].get("devices", ()))
        if self._one_in(8) and not (self.plain and (shared or self._counters_are_drawn())):
            ask = {"deviceClassName": rng.choice(("gpu", "any")), "allocationMode": "All"}
        if self._one_in(3):
            risky = self._one_in(5)
            ask["selectors"] = [{"cel": {"expression": rng.choice(list(SELECTORS) if risky else _SAFE)}}]
        if self._one_in(3):
            least = 1 if self.plain or rng.random() < 0.9 else 0
            names = rng.sample(("memory", "cores", f"{A}/memory"), 1 if self._one_in(2) else 2) if least else ["memory"]
            wanted = [name for name in names if name in ("memory", "cores") or self._one_in(8)]
            amounts = {name: str(rng.randint(1, 6)) if least else "1500m" for name in wanted}
            ask["capacity"] = {"requests": amounts}
        if self._one_in(5) or (self.plain and self._taints_and_counters()):
            ask["tolerations"] = [rng.choice((
                {"operator": "Exists"}, {"key": "sick", "operator": "Exists"},
                {"key": "sick", "operator": "Equal", "value": "yes"},
                *(() if self.plain else ({"key": "sick", "operator": "Exists", "effect": "NoSchedule"},)),
            ))]  # fmt: skip
        if admin and self._one_in(10):
            ask["adminAccess"] = True
        return ask

    def _taints_and_counters(self) -> bool:
        return self._counters_are_drawn() and any(
            "taints" in device for one in self.slices for device in one["spec"].get("devices", ())
        )


def _pool_of(slice_: dict[str, Any]) -> tuple[str, str]:
    return slice_["spec"]["driver"], slice_["spec"]["pool"]["name"]
