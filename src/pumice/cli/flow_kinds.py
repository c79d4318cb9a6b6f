"""The commands of JobFlows and of JobTemplates, which differ in their kind alone (spec volcano-core 21)."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from pumice.cli import volcano_tables as tables
from pumice.cli.volcano_api import AllNamespaces, Kubeconfig, Master, Namespace, Output, OutputOption, ask, show
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json, Resource

SEPARATOR = "---------------------------------"
Name = Annotated[str, typer.Option("-N", "--name", help="Its name.", show_default=False)]
File = Annotated[
    Path | None, typer.Option("-f", "--file", "--filename", help="A YAML file, of one or several.", show_default=False)
]


class Written(StrEnum):
    YAML = "yaml"
    JSON = "json"


def app_of(kind: str, resource: Resource) -> typer.Typer:
    """create, list, get, describe and delete for one kind, in the words of upstream (pkg/cli/jobflow, pkg/cli/jobtemplate)."""
    word = kind.lower()
    said = "job template" if kind == "JobTemplate" else word
    app = typer.Typer(add_completion=False, no_args_is_help=True, help=f"Create, list, show and delete {kind}s.",
                      epilog=f"Example: pumice {word} list")  # fmt: skip

    @app.command("create")
    def create(
        filename: File = None, namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "",
    ) -> None:  # fmt: skip
        """Create what a file holds."""
        if filename is None:
            raise BadInput(f"{word} file is mandatory to create: write -f FILE")
        found = _of_file(filename, kind)

        async def question(kube: Cluster) -> None:
            for obj in found:
                made = await kube.create(resource, obj, obj["metadata"].get("namespace") or namespace)
                print(f"Created {kind}: {_key(made)}")

        ask(kubeconfig, master, question)

    @app.command("list")
    def list_(
        namespace: Namespace = "default", all_namespaces: AllNamespaces = False, output: OutputOption = Output.TEXT,
        kubeconfig: Kubeconfig = None, master: Master = "",
    ) -> None:  # fmt: skip
        """List them."""

        async def question(kube: Cluster) -> Json:
            return await kube.list(resource, "" if all_namespaces else namespace)

        found = ask(kubeconfig, master, question)
        if not show(found, output):
            print(tables.flows(found["items"], time.time(), phased=kind == "JobFlow"))

    @app.command("get")
    def get(
        name: Name = "", namespace: Namespace = "default", output: OutputOption = Output.TEXT, kubeconfig: Kubeconfig = None,
        master: Master = "",
    ) -> None:  # fmt: skip
        """Show one in a line."""
        if not name:
            raise BadInput(f"name is mandatory to get the particular {said} details")
        (obj,) = _found(name, namespace, kubeconfig, master)
        if not show(obj, output):
            print(tables.flows([obj], time.time(), phased=kind == "JobFlow"))

    @app.command("describe")
    def describe(
        name: Name = "", namespace: Namespace = "default",
        output: Annotated[Written, typer.Option("-o", "--format", "--output", help="How to write it.")] = Written.YAML,
        kubeconfig: Kubeconfig = None, master: Master = "",
    ) -> None:  # fmt: skip
        """Show all of one, or of all."""
        for at, obj in enumerate(_found(name, namespace, kubeconfig, master)):
            if at:
                print(SEPARATOR)
            obj["metadata"].pop("managedFields", None)
            show(obj, Output(output.value))

    @app.command("delete")
    def delete(
        name: Name = "", filename: File = None, namespace: Namespace = "default", kubeconfig: Kubeconfig = None,
        master: Master = "",
    ) -> None:  # fmt: skip
        """Delete one, or what a file holds."""
        if filename is None and not name:
            raise BadInput(f"{said} name must be specified")
        unwanted: list[Json] = [{"metadata": {"name": name}}] if filename is None else _of_file(filename, kind)

        async def question(kube: Cluster) -> None:
            for obj in unwanted:
                place = obj["metadata"].get("namespace") or namespace
                await kube.delete(resource, obj["metadata"]["name"], place)
                print(f"Deleted {kind}: {place}/{obj['metadata']['name']}")

        ask(kubeconfig, master, question)

    def _found(name: str, namespace: str, kubeconfig: Path | None, master: str) -> list[Json]:
        async def question(kube: Cluster) -> list[Json]:
            return [await kube.get(resource, name, namespace)] if name else (await kube.list(resource, namespace))["items"]

        return ask(kubeconfig, master, question)

    return app


def _key(obj: Json) -> str:
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def _of_file(path: Path, kind: str) -> list[Json]:
    try:
        found = [obj for obj in yaml.safe_load_all(path.read_text("utf-8")) if obj]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"{path}: {' '.join(str(error).split())}") from error
    wanted = [obj for obj in found
              if isinstance(obj, dict) and obj.get("kind") == kind and (obj.get("metadata") or {}).get("name")]  # fmt: skip
    if not wanted:
        raise BadInput(f"{path}: it holds no {kind} with a name")
    return wanted


