"""Makes ``kubernetes.json`` from a Kubernetes OpenAPI document: ``python -m …schema.distil swagger.json > kubernetes.json``.

Only facts are kept (field names, types, list types, merge keys), no prose. One line per field::

    "ports": "[core.v1.ContainerPort] map=containerPort,protocol merge=containerPort"

Grammar of a field: TYPE, ``!`` when required, then marks. TYPE is a scalar (string, int32, int64, number, boolean, bytes, time,
microtime, quantity, int-or-string), ``any``, ``object``, the name of a type, ``[TYPE]`` or ``{TYPE}`` (map from strings).
Marks: ``atomic``, ``set``, ``map=KEYS`` (server-side apply), ``merge=KEY``, ``merge``, ``retainKeys``, ``replace`` (strategic
merge patch).
"""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.resources import files
from typing import Any

Json = dict[str, Any]

_PREFIXES = {
    "io.k8s.api.": "",
    "io.k8s.apimachinery.pkg.apis.": "",
    "io.k8s.apiextensions-apiserver.pkg.apis.": "",
    "io.k8s.kube-aggregator.pkg.apis.": "",
}
_SCALARS = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "int-or-string",
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "time",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "microtime",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "object",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "object",
}


def served_groups() -> frozenset[str]:
    """The API groups of ``kinds.toml`` in which something is written: of what is only read no shape is asked."""
    table: dict[str, dict[str, str]] = tomllib.loads(files("pumice_lab.apiserver").joinpath("kinds.toml").read_text("utf-8"))
    written = (api for api, kinds in table.items() if not all("verbs=get,list" in kind for kind in kinds.values()))
    return frozenset(api.rpartition("/")[0] for api in written)


def short(name: str) -> str:
    """``io.k8s.api.core.v1.Pod`` -> ``core.v1.Pod``."""
    for prefix, instead in _PREFIXES.items():
        if name.startswith(prefix):
            return instead + name.removeprefix(prefix)
    return name


def type_of(schema: Json, definitions: Json) -> str:
    if ref := schema.get("$ref"):
        target = ref.removeprefix("#/definitions/")
        if target in _SCALARS:
            return _SCALARS[target]
        if not definitions[target].get("properties"):
            return "object" if definitions[target].get("type") == "object" else "any"
        return short(target)
    match schema.get("type"):
        case "array":
            return f"[{type_of(schema['items'], definitions)}]"
        case "object":
            values = schema.get("additionalProperties")
            return f"{{{type_of(values, definitions)}}}" if isinstance(values, dict) else "object"
        case "string" if schema.get("format") == "byte":
            return "bytes"
        case "integer":
            return str(schema.get("format", "int64"))
        case None:
            return "any"
        case plain:
            return str(plain)


def field_line(schema: Json, required: bool, definitions: Json) -> str:
    words = [type_of(schema, definitions) + ("!" if required else "")]
    ref = definitions.get(schema.get("$ref", "").removeprefix("#/definitions/"), {})
    list_type = schema.get("x-kubernetes-list-type")
    if list_type == "map":
        words.append("map=" + ",".join(schema["x-kubernetes-list-map-keys"]))
    elif list_type in ("set", "atomic"):
        words.append(list_type)
    elif "atomic" in (schema.get("x-kubernetes-map-type"), ref.get("x-kubernetes-map-type")):
        words.append("atomic")
    for strategy in filter(None, schema.get("x-kubernetes-patch-strategy", "").split(",")):
        key = schema.get("x-kubernetes-patch-merge-key")
        words.append(f"merge={key}" if strategy == "merge" and key else strategy)
    return " ".join(words)


def distil(document: Json) -> Json:
    """``{"kinds": {"apps/v1/Deployment": type}, "types": {type: {field: line}}}`` of what is reachable from v1 kinds."""
    definitions, groups = document["definitions"], served_groups()
    kinds, todo = {}, []
    for name, definition in definitions.items():
        for gvk in definition.get("x-kubernetes-group-version-kind", ()):
            group, version, kind = gvk["group"], gvk["version"], gvk["kind"]
            if kind.endswith("List") or group not in groups or version not in ("v1", "v2"):
                continue
            if short(name).startswith("meta.") and group:
                continue  # DeleteOptions and WatchEvent are said of every group
            kinds[f"{group}/{version}/{kind}"] = short(name)
            todo.append(name)
    types: Json = {}
    while todo:
        name = todo.pop()
        if short(name) in types or name in _SCALARS:
            continue
        definition = definitions[name]
        required = set(definition.get("required", ()))
        properties = definition.get("properties", {})
        types[short(name)] = {k: field_line(v, k in required, definitions) for k, v in sorted(properties.items())}
        text = json.dumps(properties)
        todo.extend(part.split('"')[0] for part in text.split('"#/definitions/')[1:])
    return {"kinds": dict(sorted(kinds.items())), "types": dict(sorted((k, v) for k, v in types.items() if v))}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        json.dump(distil(json.load(source)), sys.stdout, indent=0)
    sys.stdout.write("\n")
