"""The commands of JobFlows and of JobTemplates, which differ in their kind alone.

Annotations are values here, not text that is read later: what a name may be depends on the kind.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pumice.cli import flags
from pumice.cli.completion import names_of
from pumice.cli.question import Kubeconfig, Master, ask
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json, Resource
from pumice_jobs.cli import volcano_tables as tables
from pumice_jobs.cli.volcano_api import AllNamespaces, Namespace, Output, OutputOption, show, written_objects

SEPARATOR = "---------------------------------"
File = Annotated[
    Path | None, flags.Option("-f", "--file", "--filename", help="A YAML file, of one or several.", show_default=False)
]
Access = tuple[Path | None, str]
"""The values of --kubeconfig and --master."""


class Written(StrEnum):
    YAML = "yaml"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Objects:
    """The actions on objects of one kind. ``said``: what a complaint calls it."""

    kind: str
    resource: Resource
    said: str

    def create(self, found: Sequence[Json], namespace: str, access: Access) -> None:
        async def question(kube: Cluster) -> None:
            for obj in found:
                made = await kube.create(self.resource, obj, obj["metadata"].get("namespace") or namespace)
                print(f"Created {self.kind}: {_key(made)}")

        ask(*access, question)

    def listed(self, namespace: str, access: Access) -> Json:
        return ask(*access, lambda kube: kube.list(self.resource, namespace))

    def found(self, name: str, namespace: str, access: Access) -> list[Json]:
        """One, or all of the namespace."""
        if not name:
            return self.listed(namespace, access)["items"]  # type: ignore[no-any-return]
        return [ask(*access, lambda kube: kube.get(self.resource, name, namespace))]

    def delete(self, unwanted: Sequence[Json], namespace: str, access: Access) -> None:
        async def question(kube: Cluster) -> None:
            for obj in unwanted:
                place = obj["metadata"].get("namespace") or namespace
                await kube.delete(self.resource, obj["metadata"]["name"], place)
                print(f"Deleted {self.kind}: {place}/{obj['metadata']['name']}")

        ask(*access, question)

    def table(self, items: list[Json]) -> None:
        print(tables.flows(items, time.time(), phased=self.kind == "JobFlow"))


def app_of(kind: str, resource: Resource) -> flags.App:
    """create, list, get, describe and delete for one kind, in the words of upstream (pkg/cli/jobflow, pkg/cli/jobtemplate)."""
    word = kind.lower()
    Name = Annotated[str, flags.Option("-N", "--name", help="Its name.", show_default=False), names_of(resource)]
    objects = Objects(kind, resource, "job template" if kind == "JobTemplate" else word)
    app = flags.App(group=True, help=f"Create, list, show and delete {kind}s.", epilog=f"Example: pumice {word} list")

    @app.command("create", epilog=f"Example: vcctl {word} create -f {word}.yaml")
    def create(
        filename: File = None, namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "",
    ) -> None:  # fmt: skip
        """Create what a file holds."""
        if filename is None:
            raise BadInput(f"{word} file is mandatory to create: write -f FILE")
        objects.create(written_objects(filename, kind), namespace, (kubeconfig, master))

    @app.command("list", epilog=f"Example: vcctl {word} list --all-namespaces")
    def list_(
        namespace: Namespace = "default", all_namespaces: AllNamespaces = False, output: OutputOption = Output.TEXT,
        kubeconfig: Kubeconfig = None, master: Master = "",
    ) -> None:  # fmt: skip
        """List them."""
        found = objects.listed("" if all_namespaces else namespace, (kubeconfig, master))
        if not show(found, output):
            objects.table(found["items"])

    @app.command("get", epilog=f"Example: vcctl {word} get -N nightly")
    def get(
        name: Name = "", namespace: Namespace = "default", output: OutputOption = Output.TEXT, kubeconfig: Kubeconfig = None,
        master: Master = "",
    ) -> None:  # fmt: skip
        """Show one in a line."""
        if not name:
            raise BadInput(f"name is mandatory to get the particular {objects.said} details: write --name NAME")
        (obj,) = objects.found(name, namespace, (kubeconfig, master))
        if not show(obj, output):
            objects.table([obj])

    @app.command("describe", epilog=f"Examples: vcctl {word} describe -N nightly;  vcctl {word} describe -o json")
    def describe(
        name: Name = "", namespace: Namespace = "default",
        output: Annotated[Written, flags.Option("-o", "--format", "--output", help="How to write it.")] = Written.YAML,
        kubeconfig: Kubeconfig = None, master: Master = "",
    ) -> None:  # fmt: skip
        """Show all of one, or of all."""
        for at, obj in enumerate(objects.found(name, namespace, (kubeconfig, master))):
            if at:
                print(SEPARATOR)
            obj["metadata"].pop("managedFields", None)
            show(obj, Output(output.value))

    @app.command("delete", epilog=f"Example: vcctl {word} delete -N nightly")
    def delete(
        name: Name = "", filename: File = None, namespace: Namespace = "default", kubeconfig: Kubeconfig = None,
        master: Master = "",
    ) -> None:  # fmt: skip
        """Delete one, or what a file holds."""
        if filename is None and not name:
            raise BadInput(f"{objects.said} name must be specified: write --name NAME, or -f FILE")
        unwanted: list[Json] = [{"metadata": {"name": name}}] if filename is None else written_objects(filename, kind)
        objects.delete(unwanted, namespace, (kubeconfig, master))

    return app


def _key(obj: Json) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"
