"""Health checks of the server under the names of its probes (kubernetes test/e2e/apimachinery/health_handlers.go)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pumice_lab.apiserver.errors import no_such_path
from pumice_lab.apiserver.http_types import Request, Response, target_of
from pumice_lab.apiserver.registry import Registry
from pumice_lab.apiserver.storage import Storage

Checks = Mapping[str, bool]
_HOOKS = (
    "start-apiserver-admission-initializer", "generic-apiserver-start-informers", "start-apiextensions-informers",
    "start-apiextensions-controllers", "crd-informer-synced", "bootstrap-controller", "start-system-namespaces-controller",
    "start-service-ip-repair-controllers", "scheduling/bootstrap-system-priority-classes",
    "start-cluster-authentication-info-controller", "start-kube-aggregator-informers", "apiservice-registration-controller",
    "apiservice-status-local-available-controller", "apiservice-status-remote-available-controller",
    "kube-apiserver-autoregistration", "apiservice-openapi-controller", "storage-readiness",
)  # fmt: skip
_STEPS = (*(f"poststarthook/{hook}" for hook in _HOOKS), "autoregister-completion")
"""Steps of kube-apiserver's start. Here they are one, and done with it."""


def health_checks(path: str, *, stores: bool, ready: bool) -> Checks:
    checks = {"ping": True, "log": True, "etcd": stores}
    if path.startswith("/readyz"):
        checks["informer-sync"] = ready
    return checks | dict.fromkeys(_STEPS, ready or path.startswith("/livez"))


def health_page(request: Request, found: Checks) -> Response:
    """Raises NotFound for a check that there is not."""
    checks = dict(found)
    whole, _, name = request.path.strip("/").partition("/")
    if name:
        if name not in checks:
            raise no_such_path()
        checks = {name: checks[name]}
    for left_out in request.query.get("exclude", ()):
        checks.pop(left_out, None)
    ok = all(checks.values())
    text = "ok" if ok else "not ready"
    if "verbose" in request.query or not ok:
        lines = [f"[{'+' if good else '-'}]{check} {'ok' if good else 'failed'}" for check, good in checks.items()]
        text = "\n".join([*lines, f"{whole} check {'passed' if ok else 'failed'}", ""])
    return Response(200 if ok else 500, text.encode(), content_type="text/plain")


def indicators(found: Checks) -> str:
    """The page ``/metrics/slis`` ("Kubernetes Component SLI Metrics")."""
    lines = ["# HELP kubernetes_healthcheck Whether a check of /readyz passes.", "# TYPE kubernetes_healthcheck gauge"]
    lines += [f'kubernetes_healthcheck{{name="{name}",type="readyz"}} {int(good)}' for name, good in found.items()]
    return "\n".join(lines) + "\n"


# -- Counters of the API server in Prometheus' text form, under upstream's names -------------------------------------

_VERBS = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "PATCH", "DELETE": "DELETE"}


class Requests:
    """Counts finished requests by verb, resource, subresource and code."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, str, str, str, int]] = Counter()

    def count(self, request: Request, response: Response) -> None:
        target = target_of(request.path)
        if target is None:
            return
        verb = _VERBS.get(request.method, "")
        if not verb:
            verb = "WATCH" if response.stream is not None else "GET" if target.name else "LIST"
        self._seen[verb, target.group, target.plural, target.subresource, response.code] += 1

    def text(self, registry: Registry, storage: Storage) -> str:
        lines = [
            "# HELP apiserver_request_total Requests by verb, resource and code.",
            "# TYPE apiserver_request_total counter",
        ]
        for (verb, group, resource, subresource, code), count in sorted(self._seen.items()):
            labels = f'code="{code}",group="{group}",resource="{resource}",subresource="{subresource}",verb="{verb}"'
            lines.append(f"apiserver_request_total{{{labels}}} {count}")
        lines += ["# HELP apiserver_storage_objects Objects by resource.", "# TYPE apiserver_storage_objects gauge"]
        for store, resource in sorted(
            {(k.storage, f"{k.plural}.{k.group}".rstrip(".")) for k in registry if not k.virtual}
        ):
            lines.append(f'apiserver_storage_objects{{resource="{resource}"}} {storage.count(store)}')
        return "\n".join(lines) + "\n"
