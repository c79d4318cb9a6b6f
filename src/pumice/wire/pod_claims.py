"""The ResourceClaims that a pod names, or that were made for it of templates (``resource.k8s.io``), and what it asks by resource.
"""

from __future__ import annotations

from pumice.model.refusal import Refusal
from pumice.wire.objects import Container, Pod
from pumice.wire.quantity import parse_quantity


def claims_of(pod: Pod) -> dict[str, str] | Refusal:
    """Return the pod's claims as namespace/name, with its own names for them, in its order; or which is still to be made."""
    made = {one.name: one.resource_claim_name for one in pod.status.resource_claim_statuses}
    found: dict[str, str] = {}
    for entry in pod.spec.resource_claims:
        name = str(entry.get("name", ""))
        claim = entry.get("resourceClaimName")
        if not claim and name not in made:
            template = entry.get("resourceClaimTemplateName")
            text = f"waits for a ResourceClaim to be made of template {template}"
            return Refusal(f"spec.resourceClaims[{name}]", text, waits=True)
        claim = claim or made[name]
        if claim:  # of a template it may be said that none is needed
            found[f"{pod.metadata.namespace}/{claim}"] = name
    return found


def named_claims(pod: Pod) -> list[str]:
    """Return the claims that a pod names itself, without their namespace."""
    return [str(entry["resourceClaimName"]) for entry in pod.spec.resource_claims if entry.get("resourceClaimName")]


def unmade(pod: Pod) -> list[tuple[str, str]]:
    """Return the names that the pod has for claims which are still to be made, each with its template."""
    made = {one.name for one in pod.status.resource_claim_statuses}
    return [(str(entry.get("name")), str(entry["resourceClaimTemplateName"])) for entry in pod.spec.resource_claims
            if entry.get("resourceClaimTemplateName") and entry.get("name") not in made]  # fmt: skip


def amounts_of(container: Container) -> dict[str, int | None]:
    """Return the amounts that a container requests, limits without a request included; None of what is no whole number."""
    found: dict[str, int | None] = {}
    for name, quantity in {**container.resources.limits, **container.resources.requests}.items():
        try:
            value = parse_quantity(quantity)
        except ValueError:
            found[name] = None
        else:
            found[name] = max(0, int(value)) if value.denominator == 1 or value <= 0 else None
    return found
