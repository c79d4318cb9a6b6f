"""Create and update objects of any kind: the steps that every write goes through, without HTTP.

Everything between the read of an object and the staging of its new state runs without a pause, so no writer can come between;
optimistic concurrency guards only against what the client saw earlier.
"""

from __future__ import annotations

from typing import Any

from pumice_lab.apiserver import admission, quota_usage
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.deletion import has_ended
from pumice_lab.apiserver.errors import (
    STALE,
    ApiFailure,
    already_exists,
    bad_request,
    conflict,
    invalid,
    invalid_value,
    not_found,
)
from pumice_lab.apiserver.match_rules import Write
from pumice_lab.apiserver.names import check_name
from pumice_lab.apiserver.patch.fields import record_write
from pumice_lab.apiserver.pod_security import admission as pod_security
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.resource_store import Stored
from pumice_lab.apiserver.schema.decode import decode
from pumice_lab.apiserver.strategies.base import validate_metadata, validate_metadata_update
from pumice_lab.apiserver.webhooks import MUTATING, VALIDATING
from pumice_lab.apiserver.write_options import WriteOptions, not_typed, report_unknown

Json = dict[str, Any]


_NARROW = ("status", "binding")  # subresources that leave the spec as it was, but for the node


class Objects:
    """Writes through one backend. Returned objects are what was stored (or would have been, for a dry run)."""

    def __init__(self, backend: Backend) -> None:
        self.backend, self.storage = backend, backend.storage

    # -- reading ---------------------------------------------------------------------------------------------------

    def stored(self, kind: Kind, namespace: str, name: str) -> Stored:
        found = self.storage.get(kind.storage, namespace, name)
        if found is None:
            raise not_found(kind.group, kind.plural, name)
        return found

    def parse(self, kind: Kind, value: Json, options: WriteOptions, applied: bool = False) -> Json:
        """A client's object in clean form. Raises BadRequest for a wrong type, and for unknown fields if validation is strict.
        ``applied``: what is meant for server-side apply owns its zeros, and names no field that there is not."""
        said = (value.get("apiVersion", kind.api_version), value.get("kind", kind.kind))
        if said != (kind.api_version, kind.kind):
            raise bad_request(
                f"the API version in the data ({said[0]}) does not match the expected API version ({kind.api_version})"
                if said[0] != kind.api_version
                else f"the kind in the data ({said[1]}) does not match the expected kind ({kind.kind})"
            )
        unknown: list[str] = []
        clean = decode(kind.shape, value, unknown, kind.kind, applied)
        if applied and unknown:  # a failure of the server, says kube-apiserver
            raise ApiFailure(500, "InternalError", not_typed(kind, value, unknown))
        report_unknown(unknown, options)
        clean = {"kind": kind.kind, "apiVersion": kind.api_version, **clean}  # first: lists leave them out of their items
        clean["apiVersion"], clean["kind"] = kind.api_version, kind.kind
        if not isinstance(clean.get("metadata"), dict):
            clean["metadata"] = {}
        return clean

    # -- create ----------------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, value: Json, options: WriteOptions) -> Json:
        """Stores a parsed object. Raises AlreadyExists, Invalid, Forbidden or NotFound (its namespace)."""
        backend, strategy = self.backend, self.backend.strategy(kind)
        metadata = value["metadata"]
        self._place(kind, namespace, metadata)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(kind, namespace, metadata["generateName"])
        for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            if key == "resourceVersion" and metadata.get(key) not in (None, "", "0"):
                raise ApiFailure(500, "InternalError", "resourceVersion should not be set on objects to be created")
            metadata.pop(key, None)
        metadata["uid"], metadata["creationTimestamp"] = backend.uid(), backend.now()
        if strategy.counts_generation:
            metadata["generation"] = 1
        else:
            metadata.pop("generation", None)
        strategy.default(value)
        # The client owns what it sent and its defaults; what the server adds from here on belongs to nobody.
        self._manage(kind, value, None, options, "")
        if kind.status and kind.id != ("", "Node"):
            value.pop("status", None)
        if kind.shape.always_there("status"):
            value.setdefault("status", {})
        admission.on_create(backend, kind, value)
        strategy.prepare_create(value)
        sent, value = value, self.mutated("CREATE", kind, value, None, options)
        if value is not sent:
            self._restore(kind, namespace, value, sent)
        metadata = value["metadata"]
        problems = validate_metadata(metadata, kind.namespaced, strategy) + strategy.validate(value)
        problems += strategy.validate_create(value)
        if problems:
            raise invalid(kind.group, kind.kind, metadata.get("name", ""), problems)
        if options.granter is not None:
            options.granter.check(kind, value, None)
        pod_security.check(backend, Write("CREATE", kind, value, None, "", options.dry_run), options)
        sent, value = value, self.judged("CREATE", kind, value, None, options)
        if value is not sent:
            self._restore(kind, namespace, value, sent)
        metadata = value["metadata"]
        quota_usage.check(self.storage, kind, value, None)
        if self.storage.get(kind.storage, namespace, metadata["name"]) is not None:
            raise already_exists(kind.group, kind.plural, metadata["name"])
        if not options.dry_run:
            self._keep(kind, namespace, metadata["name"], value, options, 0)
        return value

    def _keep(self, kind: Kind, namespace: str, name: str, value: Json, options: WriteOptions, expect: int) -> None:
        """Stages an object in the version in which its kind is stored."""
        form = options.conversion.to(kind.custom.storage_version, kind, value) if kind.custom else value
        value["metadata"]["resourceVersion"] = str(self.storage.put(kind.storage, namespace, name, form, expect).revision)

    def mutated(self, operation: str, kind: Kind, value: Json, old: Json | None, options: WriteOptions,
                 subresource: str = "") -> Json:  # fmt: skip
        """The object as policies and webhooks change it. Raises what they say, and Waits where webhooks are to be asked first."""
        if (options.admission is None and options.policies is None) or subresource == "binding":
            return value
        write = Write(operation, kind, value, old, subresource, options.dry_run)
        mutated = value if options.policies is None else options.policies.mutated(write)
        admitted = mutated if options.admission is None else options.admission.admit(write, MUTATING)
        if options.policies is not None and admitted != mutated:
            write.value = admitted
            admitted = options.policies.mutated(write, again=True)
        if operation == "DELETE":
            return value
        if admitted is not value:
            admitted = self.parse(kind, admitted, options)
            self.backend.strategy(kind).default(admitted)
        return admitted

    def judged(self, operation: str, kind: Kind, value: Json, old: Json | None, options: WriteOptions,
                subresource: str = "") -> Json:  # fmt: skip
        """The object that webhooks and policies let in as it is, which was found valid before. Raises as ``mutated``."""
        if (options.admission is None and options.policies is None) or subresource == "binding":
            return value
        write = Write(operation, kind, value, old, subresource, options.dry_run)
        found = value if options.admission is None else options.admission.admit(write, VALIDATING)
        if options.policies is not None:
            options.policies.check(write)
        return found

    def let_in(self, kind: Kind, namespace: str, name: str, body: Json, options: WriteOptions, subresource: str) -> None:
        """Admit the object of a subresource with a kind of its own (a Binding). Raises the refusal of a policy or webhook."""
        body = {**body, "metadata": {**(body.get("metadata") or {}), "name": name, "namespace": namespace}}
        write = Write("CREATE", kind, body, None, subresource, options.dry_run, body)
        if options.admission is not None:
            options.admission.admit(write, MUTATING)
            options.admission.admit(write, VALIDATING)
        if options.policies is not None:
            options.policies.check(write)

    def _place(self, kind: Kind, namespace: str, metadata: Json) -> None:
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return
        if metadata.get("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        metadata["namespace"] = namespace

    def _restore(self, kind: Kind, namespace: str, value: Json, sent: Json) -> None:
        """Restore the server's own fields after policies and webhooks. Raises BadRequest for another namespace."""
        metadata, mine = value["metadata"], sent["metadata"]
        if kind.status and kind.id != ("", "Node"):
            take(value, sent, "status")
        self._place(kind, namespace, metadata)
        for key in ("uid", "creationTimestamp", "generation", "managedFields"):
            take(metadata, mine, key)
        for key in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(key, None)

    def _free_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        for _ in range(8):
            name = self.backend.name_from(prefix)
            if self.storage.get(kind.storage, namespace, name) is None:
                return name
        raise already_exists(kind.group, kind.plural, prefix)

    # -- update ----------------------------------------------------------------------------------------------------

    def update(
        self, kind: Kind, namespace: str, name: str, value: Json, options: WriteOptions, subresource: str = ""
    ) -> Json:
        """Replaces a parsed object (or its status). Raises NotFound, Conflict, Invalid."""
        check_name(value["metadata"], name)
        stored = self.storage.get(kind.storage, namespace, name)
        strategy = self.backend.strategy(kind)
        if stored is None:
            if strategy.create_on_update and not subresource:
                value["metadata"].pop("resourceVersion", None)
                return self.create(kind, namespace, value, options)
            raise not_found(kind.group, kind.plural, name)
        self._same_object(kind, namespace, name, value, stored)
        old = options.conversion.to(kind.api_version, kind, stored.value()) if kind.custom else stored.value()
        # Identity and times are the server's: what a client leaves out (or gets wrong by omission) is kept.
        metadata, before = value["metadata"], old["metadata"]
        for key in ("uid", "namespace", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
                    "generateName", "selfLink"):  # fmt: skip
            if key in before:
                metadata[key] = before[key]
            elif key != "namespace":
                metadata.pop(key, None)
        if subresource in ("status", "approval"):
            status = {"status": value["status"]} if "status" in value else {}
            kept = {key: part for key, part in old.items() if key != "status"}
            value = kept | {"metadata": before if kind.custom else metadata} | status
            strategy.prepare_status_update(value, old)
        else:
            value = narrowed(subresource, value, old)
            strategy.default(value)
            if kind.status:
                if "status" in old:
                    value["status"] = old["status"]
                else:
                    value.pop("status", None)
            strategy.prepare_update(value, old)
        return self.replace(kind, stored, old, value, options, subresource)

    def replace(
        self, kind: Kind, stored: Stored, old: Json, value: Json, options: WriteOptions, subresource: str = ""
    ) -> Json:
        """The end of every update: validates, counts the generation, records the manager, stages what has changed."""
        sent, value = value, self.mutated("UPDATE", kind, value, old, options, subresource)
        if value is not sent:
            value = within(kind, subresource, value, sent, old)
        admission.on_update(self.backend, kind, value, subresource)
        strategy, metadata = self.backend.strategy(kind), value["metadata"]
        metadata["resourceVersion"] = old["metadata"].get("resourceVersion")
        problems = validate_metadata(metadata, kind.namespaced, strategy)
        problems += validate_metadata_update(metadata, old["metadata"])
        problems += strategy.validate_again(value, old, narrow=subresource in _NARROW)
        if subresource not in (*_NARROW, "finalize", "ephemeralcontainers", "resize"):
            problems += strategy.validate_update(value, old)
        elif subresource == "ephemeralcontainers":
            problems += strategy.validate_guests(value, old)
        if problems:
            raise invalid(kind.group, kind.kind, metadata["name"], problems)
        if options.granter is not None:
            options.granter.check(kind, value, old)
        pod_security.check(self.backend, Write("UPDATE", kind, value, old, subresource, options.dry_run), options)
        self.judged("UPDATE", kind, value, old, options, subresource)
        if subresource in ("", "resize"):
            quota_usage.check(self.storage, kind, value, old)
        if strategy.counts_generation and subresource != "status" and desired(kind, value) != desired(kind, old):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        self._manage(kind, value, old, options, subresource)
        if value == old:
            return old
        if has_ended(value):
            if not options.dry_run:
                self.storage.remove(stored.resource, stored.namespace, stored.name, value, expect=stored.revision)
            return value
        if not options.dry_run:
            self._keep(kind, stored.namespace, stored.name, value, options, stored.revision)
        return value

    def _same_object(self, kind: Kind, namespace: str, name: str, value: Json, stored: Stored) -> None:
        metadata = value["metadata"]
        if kind.namespaced and metadata.get("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        seen = metadata.get("resourceVersion")
        if seen and seen != "0":
            if seen != str(stored.revision):
                raise conflict(kind.group, kind.plural, name, STALE)
        elif not self.backend.strategy(kind).unconditional_update:
            problem = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(kind.group, kind.kind, name, [problem])
        uid = metadata.get("uid")
        if uid and uid != stored.value()["metadata"].get("uid"):
            raise conflict(kind.group, kind.plural, name, f"Precondition failed: UID in precondition: {uid}, UID in object "
                           f"meta: {stored.value()['metadata'].get('uid')}")  # fmt: skip

    def _manage(self, kind: Kind, value: Json, old: Json | None, options: WriteOptions, subresource: str) -> None:
        if options.managed is not None:
            value["metadata"]["managedFields"] = options.managed
            return
        record_write(kind, value, old, options.manager, subresource, self.backend.now())


# -- How far the way reaches by which an object is written ------------------------------------------------------------

# Through its status, through a narrow subresource, or whole.

def take(value: Json, source: Json, key: str) -> None:
    """The key as the source has it, or not at all."""
    if key in source:
        value[key] = source[key]
    else:
        value.pop(key, None)


def within(kind: Kind, subresource: str, value: Json, sent: Json, old: Json) -> Json:
    """An update as policies and webhooks changed it, no further than the way by which it came reaches."""
    if subresource in ("status", "approval"):
        changed = ("status",) if kind.custom else ("status", "metadata")
        kept = {key: part for key, part in sent.items() if key not in changed}
        return kept | {key: value[key] for key in changed if key in value}
    if kind.status:
        take(value, sent, "status")
    return narrowed(subresource, value, old)


def desired(kind: Kind, value: Json) -> Json:
    """Return the part of an object whose change is a new generation: all of a custom kind without the status subresource."""
    left_out = ("metadata",) if kind.custom and not kind.status else ("metadata", "status")
    return {key: part for key, part in value.items() if key not in left_out}


def narrowed(subresource: str, value: Json, old: Json) -> Json:
    """Return the object with what an update of a subresource may change; everything else is as it was."""
    if subresource == "ephemeralcontainers":
        return {**old, "metadata": value["metadata"], "spec": {
            **old["spec"], "ephemeralContainers": value["spec"].get("ephemeralContainers") or []}}  # fmt: skip
    if subresource == "resize":
        wanted = {c.get("name"): c.get("resources") or {} for c in value["spec"].get("containers") or []}
        kept = [{**c, "resources": wanted.get(c["name"], c.get("resources") or {})} for c in old["spec"]["containers"]]
        return {**old, "metadata": value["metadata"], "spec": {**old["spec"], "containers": kept}}
    return value
