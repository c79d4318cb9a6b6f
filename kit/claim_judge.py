"""A judge of allocations by the rules of the API, written from its description. It imports nothing of what it judges.

It knows worlds of ``claim_worlds``: devices few enough that every combination can be tried.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

from kit.claim_worlds import NODE, SELECTORS, Throws, World

Pool = tuple[str, str]
Place = tuple[str, str, str]


@lru_cache
def number(text: str) -> Fraction:
    return Fraction(text[:-1]) / 1000 if text.endswith("m") else Fraction(text)


class Judge:
    """The judge of what may be allocated in a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.pools = self._pools()
        self.devices = [
            {**device, "driver": pool[0], "pool": pool[1], "place": (*pool, device["name"])}
            for pool, slices in self.pools.items() for one in slices
            for device in one["spec"].get("devices", ()) if self._is_here(one["spec"], device)
        ]  # fmt: skip
        self.exclusive: set[Place] = set()
        self.shared: set[Place] = set()
        self.base: Counter[tuple[Any, ...]] = Counter()
        self._shares: dict[tuple[int, Place], dict[str, Fraction] | None] = {}
        """By what is asked and the device: every combination asks for them again."""
        self._count_in_use()

    # -- the world ------------------------------------------------------------------------------------------------

    def _is_here(self, spec: dict[str, Any], device: dict[str, Any] | None = None) -> bool:
        if spec.get("perDeviceNodeSelection"):
            if device is None:
                return "sharedCounters" in spec or any(self._is_here(one) for one in spec.get("devices", ()))
            spec = device
        if "nodeName" in spec:
            return bool(spec["nodeName"] == NODE)
        if "nodeSelector" in spec:
            return "z1" in str(spec["nodeSelector"])
        return bool(spec.get("allNodes"))

    def _pools(self) -> dict[Pool, list[dict[str, Any]]]:
        """Complete and valid ones that have something for the node, in their newest generation."""
        of: dict[Pool, list[dict[str, Any]]] = defaultdict(list)
        for one in self.world.slices:
            of[one["spec"]["driver"], one["spec"]["pool"]["name"]].append(one)
        found, self.broken = {}, []
        for pool, slices in of.items():
            if not any(self._is_here(one["spec"]) for one in slices):
                continue
            near = [one for one in slices if self._is_here(one["spec"]) or "sharedCounters" in one["spec"]]
            newest = max(one["spec"]["pool"]["generation"] for one in near)
            near = [one for one in near if one["spec"]["pool"]["generation"] == newest]
            wanted = near[0]["spec"]["pool"]["resourceSliceCount"]
            if len(near) != wanted:
                if any(one["spec"]["pool"]["generation"] > newest for one in slices):
                    continue
                if sum(one["spec"]["pool"]["generation"] == newest for one in slices) != wanted:
                    self.broken.append(pool)
                    continue
            names = [device["name"] for one in near for device in one["spec"].get("devices", ())]
            if len(set(names)) < len(names):
                self.broken.append(pool)
                continue
            found[pool] = sorted(near, key=lambda one: one["metadata"]["name"])
        return found

    def _count_in_use(self) -> None:
        published: dict[Place, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for one in self.world.seen:
            pool = one["spec"]["pool"]
            for device in one["spec"].get("devices", ()):
                published[one["spec"]["driver"], pool["name"], device["name"]][pool["generation"]].append(device)
        for claim in self.world.in_use:
            for result in claim["status"]["allocation"]["devices"]["results"]:
                place = (result["driver"], result["pool"], result["device"])
                first = place not in self.exclusive | self.shared
                (self.shared if "shareID" in result else self.exclusive).add(place)
                for name, amount in result.get("consumedCapacity", {}).items():
                    self.base["capacity", place, name] += number(amount)  # type: ignore[assignment]
                for device in published[place][max(published[place])] if first else ():
                    self._draw(self.base, place[:2], device)

    @staticmethod
    def _draw(usage: Counter[tuple[Any, ...]], pool: Any, device: dict[str, Any]) -> None:
        for part in device.get("consumesCounters", ()):
            for name, amount in part["counters"].items():
                usage["counter", pool, part["counterSet"], name] += number(amount["value"])  # type: ignore[assignment]

    # -- one device -----------------------------------------------------------------------------------------------

    def _matches(self, ask: dict[str, Any], device: dict[str, Any]) -> bool:
        """Selectors and size. Raises Throws."""
        class_ = next(one for one in self.world.classes if one["metadata"]["name"] == ask["deviceClassName"])
        selectors = [*class_["spec"].get("selectors", ()), *ask.get("selectors", ())]
        return all(SELECTORS[one["cel"]["expression"]](device) for one in selectors) and self._share(ask, device) is not None

    def _share(self, ask: dict[str, Any], device: dict[str, Any]) -> dict[str, Fraction] | None:
        key = (id(ask), device["place"])
        if key not in self._shares:
            self._shares[key] = self._share_of(ask, device)
        return self._shares[key]

    def _share_of(self, ask: dict[str, Any], device: dict[str, Any]) -> dict[str, Fraction] | None:
        asked = ask.get("capacity", {}).get("requests", {})
        if not asked.keys() <= device["capacity"].keys():
            return None
        shares = {}
        for name, capacity in device["capacity"].items():
            share = self._rounded(capacity, asked.get(name))
            if share is None or share > number(capacity["value"]):
                return None
            shares[name] = share
        return shares

    @staticmethod
    def _rounded(capacity: dict[str, Any], asked: str | None) -> Fraction | None:
        policy = capacity.get("requestPolicy", {})
        if asked is None:
            return number(policy.get("default", capacity["value"]))
        wanted = number(asked)
        if "validValues" in policy:
            return min((value for value in map(number, policy["validValues"]) if value >= wanted), default=None)
        if "validRange" in policy:
            span = policy["validRange"]
            share, step = number(span["min"]), number(span["step"])
            while share < wanted:
                share += step
            return None if "max" in span and share > number(span["max"]) else share
        return wanted

    @staticmethod
    def _is_tolerated(ask: dict[str, Any], device: dict[str, Any]) -> bool:
        def by(one: dict[str, Any], taint: dict[str, Any]) -> bool:
            return (
                one.get("key", taint["key"]) == taint["key"]
                and one.get("effect", taint["effect"]) == taint["effect"]
                and (one["operator"] == "Exists" or one.get("value") == taint["value"])
            )

        return all(
            taint["effect"] == "None" or any(by(one, taint) for one in ask.get("tolerations", ()))
            for taint in device.get("taints", ())
        )

    # -- whole allocations ----------------------------------------------------------------------------------------

    def wrong(self, allocations: list[dict[str, Any]]) -> str:
        """Return what is wrong with allocations (``status.allocation`` of each claim); empty where nothing is."""
        chosen = []
        for claim, allocation in zip(self.world.claims, allocations, strict=True):
            by_request: dict[str, list[Place]] = defaultdict(list)
            for result in allocation["devices"]["results"]:
                by_request[result["request"]].append((result["driver"], result["pool"], result["device"]))
            for request in claim["spec"]["devices"]["requests"]:
                found = [(name, ask) for name, ask in self._alternatives(request) if by_request.get(name)]
                if len(found) != 1:
                    return f"{request['name']}: {len(found)} alternatives were served"
                name, ask = found[0]
                places = by_request.pop(name)
                devices = [one for one in self.devices if one["place"] in places]
                if len(devices) != len(places):
                    return f"{name}: {places} are not all there, or twice"
                problem = self._wrong_number(ask, devices)
                if problem:
                    return f"{name}: {problem}"
                chosen.append((claim, request["name"], name, ask, devices))
            if by_request:
                return f"nobody asked for {sorted(by_request)}"
        return self._wrong_together(chosen) or self._wrong_numbers(allocations)

    def _wrong_numbers(self, allocations: list[dict[str, Any]]) -> str:
        """Of what results say they consume: no capacity is given out twice."""
        usage = Counter(self.base)
        for allocation in allocations:
            for result in allocation["devices"]["results"]:
                place = (result["driver"], result["pool"], result["device"])
                device = next(one for one in self.devices if one["place"] == place)
                if bool(device.get("allowMultipleAllocations")) != ("shareID" in result):
                    return f"{place}: a shareID where there must be none, or none"
                for name, amount in result.get("consumedCapacity", {}).items():
                    usage["capacity", place, name] += number(amount)  # type: ignore[assignment]
                    if usage["capacity", place, name] > number(device["capacity"][name]["value"]):
                        return f"{place}: {name} is given out twice"
        return ""

    @staticmethod
    def _alternatives(request: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        if "exactly" in request:
            return [(request["name"], request["exactly"])]
        return [(f"{request['name']}/{one['name']}", one) for one in request["firstAvailable"]]

    def _wrong_number(self, ask: dict[str, Any], devices: list[dict[str, Any]]) -> str:
        if ask["allocationMode"] == "All":
            meant = [one for one in self.devices if self._matches(ask, one)]
            return "" if devices == meant else f"All means {len(meant)} devices, not {len(devices)}"
        return "" if len(devices) == ask["count"] else f"{ask['count']} devices were asked for, not {len(devices)}"

    def _wrong_together(self, chosen: list[tuple[Any, ...]]) -> str:
        """Of a set of choices; more choices never make a wrong one right."""
        usage, holders, shared = Counter(self.base), set(self.exclusive), set(self.shared)
        mine: set[tuple[str, Place]] = set()
        values: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for claim, request, name, ask, devices in chosen:
            for device in devices:
                place, admin = device["place"], ask.get("adminAccess", False)
                try:
                    if not self._matches(ask, device):
                        return f"{place} does not match"
                except Throws:
                    return f"{place} throws"
                if not self._is_tolerated(ask, device):
                    return f"{place} is tainted"
                many = device.get("allowMultipleAllocations", False)
                if not many and (claim["metadata"]["name"], place) in mine:
                    return f"{place} twice in one claim"
                mine.add((claim["metadata"]["name"], place))
                if not admin and (place in holders or (not many and place in shared)):
                    return f"{place} is in use"
                if not admin:
                    if not (many and place in shared):
                        self._draw(usage, place[:2], device)
                    if many:
                        for capacity, share in (self._share(ask, device) or {}).items():
                            usage["capacity", place, capacity] += share  # type: ignore[assignment]
                            if usage["capacity", place, capacity] > number(device["capacity"][capacity]["value"]):
                                return f"{place}: {capacity} is not enough"
                    (shared if many else holders).add(place)
                    if device.get("consumesCounters") and not self._counters_hold(usage, place[:2], device):
                        return f"{place}: counters are not enough"
                for at, constraint in enumerate(claim["spec"]["devices"].get("constraints", ())):
                    names = constraint.get("requests", [request])
                    if request in names or name in names:
                        wrong = self._wrong_value(constraint, device, values[claim["metadata"]["name"], at])
                        if wrong:
                            return wrong
        return ""

    def _counters_hold(self, usage: Counter[tuple[Any, ...]], pool: Any, device: dict[str, Any]) -> bool:
        sizes = {(set_["name"], name): number(amount["value"]) for one in self.pools[pool]
                 for set_ in one["spec"].get("sharedCounters", ()) for name, amount in set_["counters"].items()}  # fmt: skip
        drawn = [(part["counterSet"], name) for part in device["consumesCounters"] for name in part["counters"]]
        return all(usage["counter", pool, *one] <= sizes[one] for one in drawn)

    @staticmethod
    def _wrong_value(constraint: dict[str, Any], device: dict[str, Any], values: list[Any]) -> str:
        full = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        domain, own = full.split("/")
        value = device["attributes"].get(full) or (device["attributes"].get(own) if domain == device["driver"] else None)
        if value is None:
            return f"{device['place']} has no {full}"
        if "matchAttribute" in constraint and any(value != other for other in values):
            return f"{full} differs"
        if "distinctAttribute" in constraint and value in values:
            return f"{full} is not distinct"
        values.append(value)
        return ""

    def throws(self) -> bool:
        """Return whether a selector of what is asked throws for any device."""
        for claim in self.world.claims:
            for request in claim["spec"]["devices"]["requests"]:
                for _, ask in self._alternatives(request):
                    for device in self.devices:
                        try:
                            self._matches(ask, device)
                        except Throws:
                            return True
        return False

    def is_possible(self) -> bool:
        """Return whether any allocation serves all claims. A device whose selectors throw is one that does not match."""
        asks = [(claim, request) for claim in self.world.claims for request in claim["spec"]["devices"]["requests"]]
        if self.broken and "'All'" in str(self.world.claims):
            return False
        return self._goes_on(asks, [])

    def _goes_on(self, asks: list[tuple[Any, Any]], chosen: list[tuple[Any, ...]]) -> bool:
        if not asks:
            return True
        claim, request = asks[0]
        for name, ask in self._alternatives(request):
            alone = [one for one in self.devices if not self._wrong_together([(claim, request["name"], name, ask, [one])])]
            for devices in self._sets(ask, alone):
                more = [*chosen, (claim, request["name"], name, ask, list(devices))]
                if not self._wrong_together(more) and self._goes_on(asks[1:], more):
                    return True
        return False

    def _sets(self, ask: dict[str, Any], alone: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], ...]]:
        if ask["allocationMode"] == "All":
            try:
                meant = tuple(one for one in self.devices if self._matches(ask, one))
            except Throws:
                return
            if meant:
                yield meant
        else:
            yield from combinations(alone, ask["count"])
