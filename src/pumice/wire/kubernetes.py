"""Labels, annotations and taints that Kubernetes itself gives ("Well-Known Labels, Annotations and Taints")."""

from typing import Final

DOMAIN: Final = "kubernetes.io"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
"""Of a device of a ResourceSlice (k8s.io/dynamic-resource-allocation deviceattribute)."""
OLD_ZONE: Final = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION: Final = "failure-domain.beta.kubernetes.io/region"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
AILING_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Beginning of the keys of taints that Kubernetes itself puts on nodes."""
MIRROR: Final = "kubernetes.io/config.mirror"
"""On the mirror pod of a static pod, which the kubelet runs from a file: no scheduler and no plugin serves it."""
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The last applied configuration, from which `kubectl apply` finds the fields that were removed."""
DEVICES_REFUSED: Final = "UnexpectedAdmissionError"
"""The kubelet's reason of a pod whose devices a plugin did not give (pkg/kubelet/cm/devicemanager)."""

# Volumes
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"

# API groups
AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
ADMISSION: Final = "admissionregistration.k8s.io"
EXTENSIONS: Final = "apiextensions.k8s.io"
RIGHTS: Final = "rbac.authorization.k8s.io"
STORAGE: Final = "storage.k8s.io"
NODE_GROUP: Final = "node.k8s.io"
DEVICES: Final = "resource.k8s.io"

COMPONENT: Final = "app.kubernetes.io/component"
"""The label by which manifests and charts say what a pod is."""

# Claims for devices (Dynamic Resource Allocation)
CLAIM_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of an allocated ResourceClaim."""
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""On a claim that was made of a template: the pod's own name of it."""


def in_domain(name: str) -> bool:
    """Return whether a qualified name's prefix is Kubernetes' own domain or below it."""
    prefix = name.rpartition("/")[0]
    return prefix == DOMAIN or prefix.endswith(f".{DOMAIN}")
