"""The ResourceClaims that a pod names, or that were made for it of templates (``resource.k8s.io``)."""

from __future__ import annotations

from pumice.model.refusal import Refusal
from pumice.wire.objects import Pod


def claims_of(pod: Pod) -> dict[str, str] | Refusal:
    """Return the pod's claims as namespace/name, with its own names for them, in its order; or which is still to be made."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    found: dict[str, str] = {}
    for entry in pod.spec.resource_claims:
        name = str(entry.get("name", ""))
        claim = entry.get("resourceClaimName")
        if not claim and name not in made:
            template = entry.get("resourceClaimTemplateName")
            return Refusal(f"spec.resourceClaims[{name}]", f"waits for a ResourceClaim to be made of template {template}")
        claim = claim or made[name]
        if claim:  # of a template it may be said that none is needed
            found[f"{pod.metadata.namespace}/{claim}"] = name
    return found
