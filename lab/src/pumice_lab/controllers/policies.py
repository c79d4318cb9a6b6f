"""ValidatingAdmissionPolicy: its status says that it was looked at. Its expressions were checked when it was written."""

from __future__ import annotations

from pumice.ports.cluster import Resource
from pumice_lab.controllers.actions import Action, View
from pumice_lab.controllers.common import status_patch

POLICIES = Resource("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", namespaced=False)


def reconcile(policy: View) -> list[Action]:
    status = {"observedGeneration": policy["metadata"].get("generation", 0), "typeChecking": {}}
    return [*status_patch(POLICIES, policy, status)]
