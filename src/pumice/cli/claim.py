"""``pumice claim``: claims of devices (``resource.k8s.io``) beside a cluster: which devices a claim in a file would get."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from pumice.cli import flags
from pumice.cli.streams import read
from pumice.model.errors import BadInput
from pumice.wire.document import read_documents

if TYPE_CHECKING:
    from pumice.claims.allocation import Allocation
    from pumice.claims.slices import Node

app = flags.App(group=True, help="Ask about claims of devices (Dynamic Resource Allocation), from files.",
                  epilog="Example: pumice claim fits -f slices.yaml -f claim.yaml")  # fmt: skip
Object = Mapping[str, Any]
TEMPLATE = "ResourceClaimTemplate"


@app.command(epilog="Example: pumice claim fits -f slices.yaml -f claim.yaml")
def fits(
    files: Annotated[
        list[Path], flags.Option("-f", "--filename", help="ResourceSlices, DeviceClasses, claims, nodes; given again for more.")
    ],
    node: Annotated[list[str] | None, flags.Option("--node", help="Ask of this node alone; may be given again.")] = None,
) -> None:
    """Say for each node which devices the claims in the files would get together, as those of one pod, or why none.

    Claims with a status.allocation hold what it says. Nodes are those in the files, or else those that slices name.
    The scheduler asks the same allocator. Exit code 0 when they fit somewhere, 1 when not.
    """
    from pumice.claims.reading import claim_of, class_of, results_of, slice_of
    from pumice.claims.reasons import Unallocated
    from pumice.claims.search import allocate, finished
    from pumice.claims.slices import Slices
    from pumice.claims.usage import usage_of

    objects = _by_kind(files)
    found = list(map(slice_of, objects["ResourceSlice"]))
    slices = Slices(found)
    classes = {class_.name: class_ for class_ in map(class_of, objects["DeviceClass"])}
    claims = [*objects["ResourceClaim"], *objects[TEMPLATE]]
    asked = [claim_of(one) for one in claims if not results_of(one)]
    if not asked:
        raise BadInput(f"{', '.join(map(str, files))}: no ResourceClaim that has no devices yet")
    usage = usage_of((result for one in claims for result in results_of(one)), slices)
    fit = False
    for place in _nodes(objects["Node"], found, node or ()):
        answer = finished(allocate(asked, place, slices, classes, usage, share_id=lambda: str(uuid4())))
        if isinstance(answer, Unallocated):
            print(f"{place.name}: does not fit", *(f"  {line}" for line in answer.lines), sep="\n")
        else:
            fit = True
            print(f"{place.name}: fits", *(f"  {line}" for line in _taken(answer)), sep="\n")
    if not fit:
        raise SystemExit(1)


def _by_kind(files: Iterable[Path]) -> dict[str, list[Object]]:
    """Return the objects of all files. Raises BadInput where one is no object, and none has a kind that is read here."""
    found: dict[str, list[Object]] = defaultdict(list)
    for path in files:
        for document in read_documents(read(path), file=str(path)):
            for object_ in _objects(document.value):
                if not isinstance(object_, dict) or not isinstance(object_.get("metadata"), dict):
                    raise BadInput(f"{path}:{document.line()}: expected an object of Kubernetes")
                found[str(object_.get("kind"))].append(object_)
    return found


def _objects(value: Any) -> Iterable[Any]:
    """Return what a List holds, or the object itself."""
    items = value.get("items") if isinstance(value, dict) else None
    return items if isinstance(items, list) else [value]


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
