"""Counters of the API server in Prometheus' text form, under upstream's names."""

from __future__ import annotations

from collections import Counter

from pumice_lab.apiserver.http_types import Request, Response, target_of
from pumice_lab.apiserver.registry import Registry
from pumice_lab.apiserver.storage import Storage

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
