"""What API server and claim controller do in histories: claims are made of templates, written for a Binding, and cleared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit.fake_cluster import Json, Store
from tests.property.history.claims import TEMPLATES

from pumice.audit.amounts import done
from pumice.effects.vocabulary import Bind, Deallocate, ReserveClaim

FINALIZER = "resource.kubernetes.io/delete-protection"


class Killed(Exception):
    """The scheduler ends here, whatever it was about."""


class ClaimApi:
    """``answered`` is told each claim as the server answers with it. ``refused``: so many of the next writes are; ``left``: so
    many writes are done before the scheduler is killed, None: it is not."""

    def __init__(self, store: Store, answered: Callable[[Json], None]) -> None:
        self.store, self.answered = store, answered
        self.refused = 0
        self.left: int | None = None
        self.resting = 0
        self._in_order = -1
        """The store's version at which the claim controller found nothing to do."""

    # -- the scheduler's writes, as ``apps/scheduler/claim_writes.py`` sends them ---------------------------------------

    def reserve(self, effect: Bind) -> bool:
        """Write all claims of a Binding; those that were written are taken back where one cannot be."""
        for one in effect.device_claims:
            refused = self.refused > 0
            self.refused -= refused
            if refused or not self._reserve(effect, one):
                self.undo(effect)
                return False
        return True

    def _reserve(self, effect: Bind, one: ReserveClaim) -> bool:
        found = self._get(one.namespace, one.name, one.uid)
        if found is None or "deletionTimestamp" in found["metadata"]:
            return False
        status = found.get("status") or {}
        users, shown = list(status.get("reservedFor") or ()), status.get("allocation")
        if any(user.get("uid") == effect.uid for user in users):
            self.answered(found)
            return True
        if shown is None and one.allocation is None:
            return False
        if shown is not None and one.allocation is not None and shown["devices"] != one.allocation["devices"]:
            return False
        if len(users) >= 256:
            return False
        self._write(found, {"metadata": {"finalizers": [FINALIZER]}})
        self._write(found, {"status": {"allocation": shown or one.allocation, "reservedFor": [
            *users, {"resource": "pods", "name": effect.name, "uid": effect.uid}]}})  # fmt: skip
        return True

    def _write(self, found: Json, change: Json) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                self.left = None
                raise Killed
        now = self.store.patch("ResourceClaim", self.store.key(found), change)
        assert now is not None
        self.answered(now)

    def undo(self, effect: Bind) -> None:
        for one in effect.device_claims:
            self._release(one.namespace, one.name, one.uid, effect.uid, allocated=one.allocation is not None)

    def deallocate(self, effect: Deallocate) -> None:
        self._release(effect.namespace, effect.name, effect.uid, effect.pod, allocated=True)

    def _release(self, namespace: str, name: str, uid: str, pod: str, *, allocated: bool) -> None:
        found = self._get(namespace, name, uid)
        if found is None:
            return
        status = found.get("status") or {}
        users = status.get("reservedFor") or []
        left = [user for user in users if user.get("uid") != pod]
        if status.get("allocation") is not None and (len(left) < len(users) or (allocated and not left)):
            clear = allocated and not left
            self._write(found, {"status": {"reservedFor": left or None, **({"allocation": None} if clear else {})}})

    def _get(self, namespace: str, name: str, uid: str) -> Json | None:
        found = self.store.tables["ResourceClaim"].get(f"{namespace}/{name}")
        return found if found is not None and found["metadata"]["uid"] == uid else None

    # -- the claim controller -----------------------------------------------------------------------------------------

    def control(self) -> None:
        """Make claims of templates, take reservations off that belong to nobody, and let go what is used no more."""
        before = self.store.version
        if self.resting or before == self._in_order:
            return
        pods = self.store.tables["Pod"]
        for pod in list(pods.values()):
            self._make(pod)
        alive = {pod["metadata"]["uid"] for pod in pods.values() if not done(pod)}
        exist = {pod["metadata"]["uid"] for pod in pods.values()}
        for key, found in list(self.store.tables["ResourceClaim"].items()):
            self._tidy(key, found, alive, exist)
        if self.store.version == before:
            self._in_order = before

    def _make(self, pod: Json) -> None:
        meta, said = pod["metadata"], list(pod.get("status", {}).get("resourceClaimStatuses") or ())
        known = {one["name"] for one in said}
        for entry in pod["spec"].get("resourceClaims") or ():
            template = entry.get("resourceClaimTemplateName")
            if not template or entry["name"] in known or "deletionTimestamp" in meta:
                continue
            name = f"{meta['name']}-{entry['name']}-{self.store.version}"
            owner = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"], "controller": True}
            self.store.create({"kind": "ResourceClaim", "spec": TEMPLATES[template],
                               "metadata": {"name": name, "namespace": meta["namespace"],
                                            "ownerReferences": [owner]}})  # fmt: skip
            said.append({"name": entry["name"], "resourceClaimName": name})
        if len(said) > len(known):
            self.store.patch("Pod", self.store.key(pod), {"status": {"resourceClaimStatuses": said}})

    def _tidy(self, key: str, found: Json, alive: set[str], exist: set[str]) -> None:
        status: Any = found.get("status") or {}
        users = status.get("reservedFor") or []
        left = [user for user in users if user.get("uid") in alive]
        if len(left) < len(users):
            change = {"reservedFor": left} if left else {"reservedFor": None, "allocation": None}
            found = self.store.patch("ResourceClaim", key, {"status": change}) or found
        meta = found["metadata"]
        orphan = any(owner["uid"] not in exist for owner in meta.get("ownerReferences", ()))
        free = not (found.get("status") or {}).get("allocation")
        if orphan or (free and meta.get("finalizers") and "deletionTimestamp" in meta):
            self.store.delete("ResourceClaim", key)
