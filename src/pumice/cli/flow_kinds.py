"""The commands of JobFlows and of JobTemplates, which differ in their kind alone (spec volcano-core 21)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
import yaml

from pumice.cli import volcano_tables as tables
from pumice.cli.volcano_api import AllNamespaces, Kubeconfig, Master, Namespace, Output, OutputOption, ask, show
from pumice.model.errors import BadInput
from pumice.ports.cluster import Cluster, Json, Resource

Name = Annotated[str, typer.Option("-N", "--name", help="Its name.", show_default=False)]
File = Annotated[Path | None, typer.Option("-f", "--filename", help="A YAML file, of one or several.", show_default=False)]


def app_of(kind: str, resource: Resource) -> typer.Typer:
    """create, list, get, describe and delete for one kind."""
    word = kind.lower()
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
                await kube.create(resource, obj, obj["metadata"].get("namespace") or namespace)
                print(f"create {word} {obj['metadata']['name']} successfully")

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
            print(tables.flows(found["items"], time.time()))

    @app.command("get")
    def get(
        name: Name = "", namespace: Namespace = "default", output: OutputOption = Output.TEXT, kubeconfig: Kubeconfig = None,
        master: Master = "",
    ) -> None:  # fmt: skip
        """Show one in a line."""
        obj = _one(name, namespace, kubeconfig, master, "get")
        if not show(obj, output):
            print(tables.flows([obj], time.time()))

    @app.command("describe")
    def describe(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
        """Show all of one."""
        print(tables.description(_one(name, namespace, kubeconfig, master, "describe"), [], time.time()))

    @app.command("delete")
    def delete(name: Name = "", namespace: Namespace = "default", kubeconfig: Kubeconfig = None, master: Master = "") -> None:
        """Delete one."""
        _named(name, "delete")

        async def question(kube: Cluster) -> Json:
            return await kube.delete(resource, name, namespace)

        ask(kubeconfig, master, question)
        print(f"delete {word} {name} successfully")

    def _one(name: str, namespace: str, kubeconfig: Path | None, master: str, verb: str) -> Json:
        _named(name, verb)

        async def question(kube: Cluster) -> Json:
            return await kube.get(resource, name, namespace)

        return ask(kubeconfig, master, question)

    def _named(name: str, verb: str) -> None:
        if not name:
            raise BadInput(f"{word} name is mandatory to {verb} a particular {word}")

    return app


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


