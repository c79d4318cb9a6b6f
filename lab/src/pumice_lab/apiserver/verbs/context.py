"""One request on a resource, with everything that the verbs need."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pumice_lab.apiserver.auth import Tokens
from pumice_lab.apiserver.backend import Backend
from pumice_lab.apiserver.bodies import encode
from pumice_lab.apiserver.conversion import Conversion
from pumice_lab.apiserver.errors import bad_request
from pumice_lab.apiserver.granting import Granter
from pumice_lab.apiserver.http_types import Request, Response, Target
from pumice_lab.apiserver.objects import Objects
from pumice_lab.apiserver.policies import Policies
from pumice_lab.apiserver.registry import Kind
from pumice_lab.apiserver.rights import Rights, act_of
from pumice_lab.apiserver.schema.decode import decode
from pumice_lab.apiserver.schema.shape import types
from pumice_lab.apiserver.tables.render import Tables, TableView
from pumice_lab.apiserver.write_options import WriteOptions

Json = dict[str, Any]


@dataclass(slots=True)
class Call:
    """A request, the kind and object that its path names, and the means to answer."""

    request: Request
    target: Target
    kind: Kind
    backend: Backend
    objects: Objects
    tables: Tables
    tokens: Tokens
    rights: Rights

    def asked(self, group: str, version: str, kind: str) -> Json:
        """The body as an object of a kind that is asked and not stored. Raises BadRequest for a wrong type."""
        shape = types().of_kind(group, version, kind)
        assert shape is not None
        return decode(shape, self.request.value(), [], kind)

    def require(self, verb: str) -> None:
        """A further right that this request turns out to need. Raises Forbidden."""
        self.rights.require(self.request.user, replace(act_of(self.request, self.target), verb=verb))

    @property
    def options(self) -> WriteOptions:
        request = self.request
        dry_run = request.query.get("dryRun", [])
        if any(value != "All" for value in dry_run):
            raise bad_request('dryRun: Unsupported value: only "All" is supported')
        validation = request.param("fieldValidation", "Warn")
        if validation not in ("Strict", "Warn", "Ignore"):
            raise bad_request(f"fieldValidation: Unsupported value: {validation!r}")
        return WriteOptions(
            manager=request.manager,
            user=request.user.name,
            dry_run=bool(dry_run),
            validation=validation,
            warn=request.warnings.append,
            twice=request.twice,
            admission=request.admission,
            conversion=request.conversion,
            policies=Policies(self.backend, self.rights, request.user, request.warnings.append),
            granter=Granter(self.rights, request.user),
        )

    def shown(self, value: Json) -> Json:
        """A stored object in this kind's version. Raises Unconverted."""
        return to_version(self.kind, value, self.request.conversion)

    def show(self, value: Json, code: int = 200) -> Response:
        """The object as the client wants it: in this kind's version, as JSON or as a one-row Table."""
        value = self.shown(value)
        if view := table_view(self.request):
            return Response(code, self.tables.single(self.kind, value, view))
        return Response(code, encode(value))


def table_view(request: Request) -> TableView | None:
    """Return the Table that the client wants, or None when its Accept header prefers plain objects."""
    for part in request.headers.get("accept", "").split(","):
        fields = dict(f.strip().partition("=")[::2] for f in part.split(";")[1:])
        if fields.get("as") == "Table" and fields.get("g") == "meta.k8s.io":
            if fields.get("v") in ("v1", "v1beta1"):
                return TableView(fields["v"], request.param("includeObject", "Metadata"))
        elif part.strip().startswith(("application/json", "*/*")):
            return None
    return None


def takes_objects(request: Request) -> bool:
    """Return True if the client reads an object as it is, be it as its last choice."""
    parts = [part.strip() for part in request.headers.get("accept", "*/*").split(",")]
    return any(part.startswith(("application/json", "*/*", "application/*")) and ";as=" not in part for part in parts)


def metadata_view(request: Request) -> bool:
    """Return True if the client wants PartialObjectMetadata."""
    return "as=PartialObjectMetadata" in request.headers.get("accept", "").partition(",")[0]


def to_version(kind: Kind, value: Json, conversion: Conversion) -> Json:
    """A stored object as this version of its kind shows it. Raises Unconverted."""
    if kind.kind == "Event" and not kind.custom:
        from pumice_lab.apiserver.tables.kinds import to_core, to_events_v1

        return value if value.get("apiVersion") == kind.api_version else to_events_v1(value) if kind.group else to_core(value)
    value = conversion.to(kind.api_version, kind, value)
    if kind.custom and kind.custom.older:
        kind.custom.strategy.default(value)
    return value


def from_version(kind: Kind, value: Json) -> Json:
    """A client's object as the server works with it: a custom one stays in its version until it is stored."""
    if kind.kind == "Event" and kind.group == "events.k8s.io":
        from pumice_lab.apiserver.tables.kinds import to_core

        return to_core(value)
    return value
