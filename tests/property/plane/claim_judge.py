"""Judges of claims in the plane, by API objects, limits pages and the runtime's containers; like ``judge`` they import nothing of
Pumice but its auditor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kit.fake_cluster import Json
from tests.property.plane.judge import MIB_OF, PAGE, Lies, allowed, granted, in_gang

from pumice.audit.amounts import quantity
from pumice.audit.card_rules import HELD, cards_of
from pumice.audit.claim_rules import results

SHARED = re.compile(r"gpu-(\d+)-shared")
SLICE = re.compile(r"gpu-(\d+)-mig-(\w+)-\d+-(\d+)")


def card_of(result: Json) -> str:
    """Return the UUID of the card that an allocated device is or is a part of, by its name."""
    found = re.match(r"gpu-(\d+)-", result["device"])
    assert found is not None, result
    return f"GPU-{result['pool']}-{found[1]}"


def by_name(claims: Iterable[Json]) -> dict[str, Json]:
    return {f"{one['metadata']['namespace']}/{one['metadata']['name']}": one for one in claims}


def claim_names(pod: Json) -> dict[str, str]:
    """Return the names of the pod's claims, as far as they are made, by the pod's own names for them."""
    made = {one["name"]: one.get("resourceClaimName") for one in pod["status"].get("resourceClaimStatuses") or ()}
    entries = pod["spec"].get("resourceClaims") or ()
    found = {one["name"]: one.get("resourceClaimName") or made.get(one["name"]) for one in entries}
    return {name: f"{pod['metadata']['namespace']}/{claim}" for name, claim in found.items() if claim}


def users(claim: Json) -> set[str]:
    return {one["uid"] for one in (claim.get("status") or {}).get("reservedFor") or ()}


def wrong_containers(running: Iterable[tuple[Json, str, Any]], claims: dict[str, Json], pods: dict[str, Json],
                     lies: Lies) -> list[str]:  # fmt: skip
    """Return a sentence for each container that can do something else than its claim was given, and for each card that one has by
    annotation and one by claim. ``pods``: those that are there, by UID: of others the kubelet has yet to hear."""
    found: list[str] = []
    annotated: dict[str, str] = {}
    claimed: dict[str, str] = {}
    for pod, container, seen in running:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
        annotated |= {uuid.partition("[")[0]: key for uuid, _, _ in _by_annotation(pod, container)}
        uid = pod["metadata"]["uid"]
        mine = next(one for one in pod["spec"]["containers"] if one["name"] == container)["resources"].get("claims") or ()
        if not mine or uid not in pods or pods[uid]["status"].get("phase") in ("Succeeded", "Failed"):
            continue
        held = [claims.get(claim_names(pod).get(one["name"], "")) for one in mine]
        if any(claim is None or uid not in users(claim) for claim in held):
            found.append(f"{key} runs, and a claim of it is not its own")
            continue
        due = [one for claim in held if claim is not None for one in results(claim)]
        claimed |= {card_of(one): key for one in due}
        parts_of = [(one, one["consumedCapacity"]) for one in due if SHARED.fullmatch(one["device"])]
        shares = sorted((card_of(one), quantity(part["memory"]) // MIB_OF, int(part["cores"])) for one, part in parts_of)
        slices = sorted((card_of(one), parts[2], int(parts[3])) for one in due if (parts := SLICE.fullmatch(one["device"])))
        visible = sorted(uuid for uuid in seen.env.get("NVIDIA_VISIBLE_DEVICES", "").split(",") if uuid)
        places = [lies.get(uuid, (uuid, "", -1)) for uuid in visible if uuid in lies or slices]
        sees = sorted((card, re.sub(r"[.+]", "", profile).lower(), start) for card, profile, start in places)
        page = Path(seen.mounts.get(PAGE, ""))
        may = allowed(page.read_bytes()) if page.is_file() else []
        if may != shares or sees != slices or (shares and visible != sorted({uuid for uuid, _, _ in shares})):
            found.append(f"{key} was given {shares or slices} by claim, may have {may} and sees {sees or visible}")
    both = sorted(annotated.keys() & claimed.keys())
    return found + [f"{annotated[uuid]} has a share of {uuid}, and {claimed[uuid]} a claim" for uuid in both]


def _by_annotation(pod: Json, container: str) -> list[tuple[str, int, int]]:
    return granted(pod, container) if HELD in pod["metadata"].get("annotations", {}) else []


def stand_ins(claims: Iterable[Json], nodes: Iterable[Json]) -> Iterator[Json]:
    """Yield for each card of which claims hold a part a pod that has all of it: no annotated pod may have any."""
    held = {card_of(one): one["pool"] for claim in claims for one in results(claim)}
    totals = {card.uuid: card.total for node in nodes for card in cards_of(node).values()}
    for uuid, node in sorted(held.items()):
        yield {"metadata": {"name": f"claims-of-{uuid}", "namespace": "default", "uid": f"claims-of-{uuid}",
                            "annotations": {HELD: f"{uuid},NVIDIA,{totals.get(uuid, 0)},100:;"}},
               "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {}}]},
               "status": {"phase": "held"}}  # fmt: skip


def asleep(pods: Iterable[Json], claims: dict[str, Json], slices: Iterable[Json], annotated: set[str]) -> list[str]:
    """Return a sentence for each pod by itself with one claim, and nothing else, that waits although its claim has devices, or a
    card that is open to claims has what it asks for. ``annotated``: UUIDs of cards of which pods have shares."""
    found = []
    devices = [(spec["pool"]["name"], one) for spec in (each["spec"] for each in slices) for one in spec.get("devices") or ()
               if SHARED.fullmatch(one["name"]) and not one.get("taints")]  # fmt: skip
    for pod in pods:
        names = claim_names(pod)
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or len(names) != 1 or in_gang(pod):
            continue
        claim = claims.get(next(iter(names.values())))
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            continue
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if results(claim):
            found.append(f"{key} waits, and its claim has devices")
            continue
        asked = claim["spec"]["devices"]["requests"][0]["exactly"]
        if asked["deviceClassName"] != "gpu.pumice.io":
            continue
        wanted = {name: quantity(amount) for name, amount in asked["capacity"]["requests"].items()}
        for pool, device in devices:
            place = {"pool": pool, "device": device["name"]}
            taken = [one for other in claims.values() for one in results(other) if place.items() <= one.items()]
            left = {name: quantity(said["value"]) - sum(quantity(one["consumedCapacity"][name]) for one in taken)
                    for name, said in device["capacity"].items()}  # fmt: skip
            if card_of(place) not in annotated and all(amount <= left[name] for name, amount in wanted.items()):
                found.append(f"{key} waits, and device {device['name']} of {pool} has what its claim asks for")
                break
    return found


def reserved_for_nobody(claims: Iterable[Json], pods: dict[str, Json]) -> list[str]:
    """Return a sentence for each claim that is reserved for a pod that is gone or over."""
    alive = {uid for uid, pod in pods.items() if pod["status"].get("phase") not in ("Succeeded", "Failed")}
    return [f"claim {one['metadata']['name']} is reserved for a pod that is gone" for one in claims if users(one) - alive]
