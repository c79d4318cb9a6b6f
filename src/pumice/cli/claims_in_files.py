"""The claims of files and the slices beside them: which devices they get together, by the allocator that the scheduler asks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pumice.model.errors import BadInput
from pumice.wire.document import Document

if TYPE_CHECKING:
    from pumice.claims.allocation import Allocation
    from pumice.claims.slices import Node

Object = Mapping[str, Any]
TEMPLATE = "ResourceClaimTemplate"


def fits_somewhere(documents: Iterable[Document], only: Iterable[str]) -> bool:
    """Say for each node which devices the claims get together, as those of one pod, or why none. Claims with a status.allocation
    hold what it says. Nodes are ``only`` these, else those in the documents, or else those that slices name."""
    from pumice.claims.reading import claim_of, class_of, results_of, slice_of
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
