"""The common part of the commands on Jobs, queues and pods: options, Commands, and output for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml

from pumice.cli import flags
from pumice.cli.completion import NAMESPACES
from pumice.cli.streams import read
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json
from pumice.wire import volcano
from pumice.wire.document import read_documents

Namespace = Annotated[str, flags.Option("-n", "--namespace", help="Namespace."), NAMESPACES]
AllNamespaces = Annotated[bool, flags.Option("--all-namespaces", help="In every namespace.")]
OnlyScheduler = Annotated[str, flags.Option("-S", "--scheduler", help="Only this scheduler's.", show_default=False)]
NameSelector = Annotated[str, flags.Option("--selector", help="Only names with this in them.", show_default=False)]


class Output(StrEnum):
    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


OutputOption = Annotated[Output, flags.Option("-o", "--output", help="json and yaml are for programs.")]


async def give_command(kube: Cluster, target: Json, api: str, kind: str, action: str, namespace: str) -> None:
    """Ask the controller for something on a Job or queue."""
    meta = target["metadata"]
    reference = {"apiVersion": api, "kind": kind, "name": meta["name"], "uid": meta["uid"], "controller": True,
                 "blockOwnerDeletion": True}  # fmt: skip
    body = {"apiVersion": volcano.BUS_API, "kind": "Command", "action": action, "target": reference,
            "metadata": {"generateName": f"{meta['name']}-{action.lower()}-", "ownerReferences": [reference]}}  # fmt: skip
    await kube.create(volcano.COMMANDS, body, namespace)


def show(found: Mapping[str, Any], output: Output) -> bool:
    """Print it for a program, where that is asked for."""
    if output is Output.JSON:
        print(json.dumps(found, indent=2))
    elif output is Output.YAML:
        print(yaml.safe_dump(dict(found), sort_keys=False), end="")
    return output in (Output.JSON, Output.YAML)


def quantities(text: str) -> dict[str, str]:
    """``cpu=1000m,memory=100Mi``. Raises BadInput."""
    found = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise BadInput(f"{pair!r} is no resource; write for example cpu=1000m,memory=100Mi")
        found[name.strip()] = value.strip()
    return found


def written_objects(path: Path, kind: str) -> list[Json]:
    """Those of a kind in a file that somebody wrote. Raises BadInput where it holds none that has a name."""
    found = [document.value for document in read_documents(read(path), file=str(path))]
    meant = [obj for obj in found if isinstance(obj, dict) and obj.get("kind") == kind and _has_name(obj.get("metadata"))]
    if not meant:
        raise BadInput(f"{path}: it holds no {kind} with a name")
    return meant


def _has_name(meta: Any) -> bool:
    return isinstance(meta, dict) and isinstance(meta.get("name"), str) and meta["name"] != ""
