"""``pumice fits``: would a pod or a claim that does not exist yet find a place? ``pumice claim fits`` is the same, for who asks
about claims of devices (``resource.k8s.io``)."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import msgspec

from pumice.cli import flags
from pumice.cli.streams import read
from pumice.model.errors import BadInput
from pumice.wire import names
from pumice.wire.document import Document, read_documents
from pumice.wire.objects import ClaimStatus, Pod, convert
from pumice.wire.pod_claims import unmade

if TYPE_CHECKING:
    from pumice.claims.allocation import Allocation
    from pumice.claims.slices import Node
    from pumice.scheduler.state.device_claims import DeviceClaims

app = flags.App()
OF_CLAIMS = "Example: pumice claim fits -f slices.yaml -f claim.yaml"
claim = flags.App(group=True, help="Ask about claims of devices (Dynamic Resource Allocation), from files.", epilog=OF_CLAIMS)


@claim.command(epilog=OF_CLAIMS)
@app.command(epilog="Example: pumice fits -f pod.yaml && kubectl apply -f pod.yaml")
def fits(
    files: Annotated[
        list[Path],
        flags.Option("-f", "--filename", help="Manifests of pods or claims, or - for standard input; given again for more."),
    ],
    file: Annotated[Path | None, flags.Option("--from", help="Answer from a file written by `pumice dump`.")] = None,
    kubeconfig: Annotated[Path | None, flags.Option(envvar="KUBECONFIG", help="Kubeconfig file.")] = None,
    scheduler_name: Annotated[
        list[str] | None, flags.Option(help="Pods with this schedulerName are ours; may be given again.")
    ] = None,
    node: Annotated[
        list[str] | None, flags.Option("--node", help="Where files have slices: ask of this node alone; may be given again.")
    ] = None,
    output: Annotated[str, flags.Option("-o", "--output", help="text, wide (every card) or json.")] = "text",
) -> None:
    """Ask the scheduler's filter about a manifest, or about the pod template of a Job or Deployment. Claims, their templates and
    classes in the files count as if they were there. Claims without a pod are asked about as those of one pod.

    Where files have ResourceSlices and no pod, the allocator is asked about these alone, and no cluster.
    Exit code 0 when it fits, 1 when it does not.
    """
    # Only here: help and completion need no engine.
    from pumice.cli.cluster_snapshot import engine_of
    from pumice.cli.explanation import show, units_of
    from pumice.cli.snapshot_source import Source, take_snapshot
    from pumice.devices.lint import lint_files
    from pumice.scheduler.explaining.explain import OVERTAKEN, explain

    texts = {path: read(path) for path in files}
    of_file = {path: documents_of(path, text) for path, text in texts.items()}
    documents = [document for found in of_file.values() for document in found]
    named_in = ", ".join(map(str, files))
    for path, text in texts.items():
        for finding in lint_files({str(path): text}):
            print(finding, file=sys.stderr)  # what is asked may not be what was meant
    pods = [pod for path, found in of_file.items() for pod in pods_of(path, found)]
    kinds = {object_.get("kind") for found in documents for object_ in objects_of(found)} if not pods else set[object]()
    if "ResourceSlice" in kinds:
        if file is not None or output != "text":
            raise BadInput(f"{named_in}: of slices in files the answer is text, and of nothing else")
        raise SystemExit(0 if fits_somewhere(documents, node or ()) else 1)
    if node:
        raise BadInput("--node is for slices in files; write spec.nodeSelector into the pod")
    if not pods and not kinds & {"ResourceClaim", "ResourceClaimTemplate"}:
        raise BadInput(f"{named_in}: no Pod and nothing with a pod template in it, and no ResourceClaim")
    claims_alone = not pods
    pods = pods or [pod_of_claims(documents)]
    snapshot = take_snapshot(Source(file=file, kubeconfig=kubeconfig, scheduler_names=tuple(scheduler_name or ())))
    taken = True
    for pod in pods:
        engine = engine_of(snapshot)
        named = with_claims(scheduled_by(pod, engine.state.pods.scheduler_names), documents, engine.state.device_claims)
        for entry, template in unmade(named):
            print(f"{named_in}: claim {entry}: no ResourceClaimTemplate {template} in the files; write it beside the pod",
                  file=sys.stderr)  # fmt: skip
        engine.state.pods.put(named, snapshot.now)
        found = explain(engine, named, now=snapshot.now)
        if not claims_alone and named.spec.scheduler_name != (pod.spec.scheduler_name or names.KUBE_SCHEDULER):
            found = replace(found, gates=(f"{UNNAMED}; write schedulerName: {named.spec.scheduler_name}", *found.gates))
        show(found, output, units_of(engine.device_types))
        taken = taken and bool(found.node) and found.gates in ((), (OVERTAKEN,))
    if not taken:
        raise SystemExit(1)


UNNAMED = f"it names no schedulerName, so {names.KUBE_SCHEDULER} places it, which knows of no shares"


def scheduled_by(pod: Pod, ours: Collection[str]) -> Pod:
    """The pod as the API server stores it; one that names no scheduler as if it named ours, so that all else can be told."""
    if pod.spec.scheduler_name:
        return pod
    name = names.KUBE_SCHEDULER if names.KUBE_SCHEDULER in ours else min(ours)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name=name))


def with_claims(pod: Pod, documents: Iterable[Document], known: DeviceClaims) -> Pod:
    """Return the pod as Kubernetes' controller of claims would leave it, with a claim of its own for each template that it names.
    These, and the claims and classes of the documents, are put into ``known``; claims that are there already stay as they are."""
    space, made = pod.metadata.namespace, list[ClaimStatus]()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid, "controller": True}
    for obj in (_mapping(one) for document in documents for one in items_of(document)):
        meta, kind = _mapping(obj.get("metadata")), obj.get("kind")
        meta = {**meta, "namespace": meta.get("namespace") or space}
        if kind == "DeviceClass":
            known.put_class({**obj, "metadata": meta})
        elif kind == "ResourceClaim" and f"{meta['namespace']}/{meta.get('name')}" not in known.claims:
            known.put_claim({**obj, "metadata": {"uid": f"asked-claim-{meta.get('name')}", **meta}})
        elif kind == "ResourceClaimTemplate" and meta["namespace"] == space:
            for entry in pod.spec.resource_claims:
                if entry.get("resourceClaimTemplateName") == meta.get("name"):
                    name = f"{pod.metadata.name}-{entry.get('name')}"
                    known.put_claim({"metadata": {"name": name, "namespace": space, "uid": f"asked-claim-{name}",
                                                  "ownerReferences": [owner]},
                                     "spec": _mapping(obj.get("spec")).get("spec")})  # fmt: skip
                    made.append(ClaimStatus(str(entry.get("name")), name))
    status = msgspec.structs.replace(pod.status, resource_claim_statuses=[*pod.status.resource_claim_statuses, *made])
    return msgspec.structs.replace(pod, status=status)


def documents_of(path: Path, text: str) -> list[Document]:
    """Return the documents of a manifest. Raises BadInput where it is not YAML."""
    return read_documents(text, file=str(path))


def pod_of_claims(documents: Iterable[Document]) -> Pod:
    """Return a pod that has all claims of the documents, for who asks about these alone."""
    claims, space = list[dict[str, Any]](), ""
    for object_ in (one for document in documents for one in objects_of(document)):
        key = {"ResourceClaim": "resourceClaimName", "ResourceClaimTemplate": "resourceClaimTemplateName"}.get(object_["kind"])
        if key is not None:
            claims.append({"name": f"c{len(claims)}", key: object_["metadata"].get("name")})
            space = space or object_["metadata"].get("namespace") or ""
    uses = {"name": "c", "resources": {"claims": [{"name": one["name"]} for one in claims]}}
    meta = {"name": "claims", "namespace": space or "default", "uid": "asked-claims"}
    return convert(Pod, {"metadata": meta, "spec": {"resourceClaims": claims, "containers": [uses]}})


def pods_of(path: Path, documents: Iterable[Document]) -> list[Pod]:
    """The pods that a manifest makes. Raises BadInput where one is none that the API server would take."""
    found = []
    for document in documents:
        for pod in templates(document.value):
            try:
                found.append(convert(Pod, pod))
            except msgspec.ValidationError as error:
                raise BadInput(f"{path}:{document.line()}: no pod that the API server would take: {error}") from None
    return found


def templates(obj: Any) -> list[dict[str, Any]]:
    """The pod manifests inside an object: the pod itself, or the templates of a workload or a Volcano job."""
    if not isinstance(obj, dict) or not isinstance(obj.get("spec"), dict):
        return []
    spec, meta = obj["spec"], _mapping(obj.get("metadata"))
    if obj.get("kind") == "Pod" or ("kind" not in obj and "containers" in spec):
        return [named(obj, meta, "")]
    found = []
    for number, task in enumerate(spec["tasks"] if isinstance(spec.get("tasks"), list) else ()):
        if isinstance(task, dict) and isinstance(task.get("template"), dict):
            pod = named(task["template"], meta, f"-{task.get('name') or number}")
            pod["spec"].setdefault("schedulerName", spec.get("schedulerName") or "volcano")  # the Job's, as its controller has it
            if isinstance(spec.get("queue"), str):
                pod["metadata"]["annotations"] = {names.QUEUE_NAME: spec["queue"], **_mapping(pod["metadata"].get("annotations"))}
            found.append(pod)
    template = spec.get("template")
    if isinstance(template, dict):
        found.append(named(template, meta, ""))
    inner = spec.get("jobTemplate")
    return found + (templates({"kind": "Job", "metadata": meta, **inner}) if isinstance(inner, dict) else [])


def named(pod: dict[str, Any], meta: dict[str, Any], suffix: str) -> dict[str, Any]:
    """The pod with a name and a uid of its own, which no pod of the cluster has."""
    own = _mapping(pod.get("metadata"))
    own.setdefault("name", f"{meta.get('name', 'pod')}{suffix}")
    own.setdefault("namespace", meta.get("namespace", "default"))
    own["uid"] = f"asked-{own['namespace']}-{own['name']}"
    return {"metadata": own, "spec": _mapping(pod.get("spec"))}


def _mapping(value: Any) -> dict[str, Any]:
    """A copy; empty where it is no mapping."""
    return dict(value) if isinstance(value, dict) else {}


# -- Claims and slices in files: which devices they get together, by the allocator that the scheduler asks -------------


Object = Mapping[str, Any]
TEMPLATE = "ResourceClaimTemplate"


def fits_somewhere(documents: Iterable[Document], only: Iterable[str]) -> bool:
    """Say for each node which devices the claims get together, as those of one pod, or why none. Claims with a status.allocation
    hold what it says. Nodes are ``only`` these, else those in the documents, or else those that slices name."""
    from pumice.claims.objects import claim_of, class_of, results_of, slice_of
    from pumice.claims.reasons import Unallocated
    from pumice.claims.search import allocate, finished
    from pumice.claims.slices import Slices
    from pumice.claims.usage import usage_of

    objects = _by_kind(documents)
    found = list(map(slice_of, objects["ResourceSlice"]))
    slices = Slices(found)
    classes = {class_.name: class_ for class_ in map(class_of, objects["DeviceClass"])}
    claims = [*objects["ResourceClaim"], *objects[TEMPLATE]]
    asked = [claim_of(one) for one in claims if not results_of(one)]
    if not asked:
        raise BadInput("no ResourceClaim in the files that has no devices yet")
    usage = usage_of((result for one in claims for result in results_of(one)), slices)
    fit = False
    for place in _nodes(objects["Node"], found, only):
        answer = finished(allocate(asked, place, slices, classes, usage, share_id=lambda: str(uuid4())))
        if isinstance(answer, Unallocated):
            print(f"{place.name}: does not fit", *(f"  {line}" for line in answer.lines), sep="\n")
        else:
            fit = True
            print(f"{place.name}: fits", *(f"  {line}" for line in _taken(answer)), sep="\n")
    return fit


def _by_kind(documents: Iterable[Document]) -> dict[str, list[Object]]:
    """Raises BadInput where one is no object."""
    found: dict[str, list[Object]] = defaultdict(list)
    for document in documents:
        for object_ in objects_of(document):
            found[str(object_.get("kind"))].append(object_)
    return found


def _nodes(given: Iterable[Object], slices: Iterable[Any], asked: Iterable[str]) -> Iterator[Node]:
    from pumice.claims.slices import Node

    labels = {str(one["metadata"].get("name")): one["metadata"].get("labels") or {} for one in given}
    named = {one.spec.node_name for one in slices} | {device.node_name for one in slices for device in one.spec.devices}
    names = list(asked) or sorted(labels or named - {""}) or ["any node"]
    return (Node(name, labels.get(name, {})) for name in names)


def _taken(allocations: Iterable[Allocation]) -> Iterator[str]:
    from pumice.claims.reasons import shown

    for allocation in allocations:
        for one in allocation.devices:
            amounts = "".join(f", {name} {shown(amount)}" for name, amount in one.consumed.items())
            yield f"claim {allocation.claim}, request {one.request}: {one.place.id}{amounts}"


def objects_of(document: Document) -> list[dict[str, Any]]:
    """Return what a List holds, or the object itself. Raises BadInput where one is no object of Kubernetes."""
    found = items_of(document)
    if any(not isinstance(one, dict) or not isinstance(one.get("metadata"), dict) for one in found):
        raise BadInput(f"{document.file}:{document.line()}: expected an object of Kubernetes")
    return found


def items_of(document: Document) -> list[Any]:
    """Return what a List holds, or the document itself, whatever it is."""
    items = document.value.get("items") if isinstance(document.value, dict) else None
    return items if isinstance(items, list) else [document.value]
