"""Kinds that are stored and that no controller acts by: an event on the object says so."""

from __future__ import annotations

from pumice.effects.vocabulary import Event
from pumice.ports.cluster import Resource
from pumice.wire import kinds
from pumice_lab.controllers.actions import Action, View

KINDS = {
    Resource("autoscaling", "v2", "horizontalpodautoscalers"): ("HorizontalPodAutoscaler", "nothing is scaled by it"),
    Resource("networking.k8s.io", "v1", "ingresses"): ("Ingress", "nothing is let in by it"),
    kinds.NETWORK_POLICIES: ("NetworkPolicy", "nobody is kept from any pod by it"),
}


def reconcile(resource: Resource, obj: View) -> list[Action]:
    kind, consequence = KINDS[resource]
    about = {"apiVersion": f"{resource.group}/{resource.version}", "kind": kind, "metadata": obj["metadata"]}
    return [Event.on(about, "Warning", "WithoutEffect", f"{kind}s have no effect in this cluster: {consequence}")]
