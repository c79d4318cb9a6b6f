"""Keeps the registry in step with the CustomResourceDefinitions in storage."""

from __future__ import annotations

from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.crd.kinds import kinds_of
from pumice_lab.apiserver.resource_store import Stored, StoreEvent

DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"


class CustomKinds:
    """Serves every definition that is stored, from the moment it is staged; a deleted one takes its objects along."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        for stored in backend.storage.objects(DEFINITIONS):
            self._serve(stored)
        backend.storage.hooks[DEFINITIONS] = self._changed

    def _changed(self, event: StoreEvent) -> None:
        spec = event.stored.value()["spec"]
        self._backend.registry.drop_group_resource(spec["group"], spec["names"]["plural"])
        if event.change == "DELETED":
            storage = self._backend.storage
            for stored in storage.objects(f"{spec['group']}/{spec['names']['plural']}"):
                storage.remove(stored.resource, stored.namespace, stored.name, stored.value())
        else:
            self._serve(event.stored)

    def _serve(self, stored: Stored) -> None:
        for kind in kinds_of(stored.value(), self._backend.registry.types):
            self._backend.registry.add(kind)
            assert kind.custom is not None
            if kind.api_version == kind.custom.storage_version:
                self._backend.use(kind, kind.custom.strategy)
