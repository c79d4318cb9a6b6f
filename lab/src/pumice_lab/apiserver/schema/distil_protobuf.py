"""Makes ``protobuf.json`` from the Go types of Kubernetes:

``python -m …schema.distil_protobuf K8S_IO_API/ APIMACHINERY/pkg/apis/ APIEXTENSIONS/pkg/apis/ > protobuf.json``

One line per type: ``"1=name 2=>core.v1.VolumeSource 6=replicas*"``. ``>`` marks a message whose fields are the parent's own
in JSON, ``*`` a value that may be zero or empty and still be meant (a pointer in Go); other zero values are "not set".
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from pumice_lab.apiserver.schema.shape import load_types

_STRUCT = re.compile(r"^type (\w+) struct \{$")
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?(\S+)\s+`.*?json:\"([^\"]*)\".*?protobuf:\"\w+,(\d+),[^\"]*\"")
_INLINE = re.compile(r"^\t(\w+)\s+`json:\",inline\".*?protobuf:\"\w+,(\d+),")


def of_package(directory: Path, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted(directory.glob("*.go")):
        name = ""
        fields: list[str] = []
        for line in path.read_text("utf-8").splitlines():
            if match := _STRUCT.match(line):
                name, fields = f"{prefix}.{match[1]}", []
            elif line == "}" and name:
                if fields:
                    found[name] = " ".join(fields)
                name = ""
            elif name and (match := _INLINE.match(line)):
                fields.append(f"{match[2]}=>{prefix}.{match[1]}")
            elif name and (match := _FIELD.match(line)):
                _, go_type, tag, number = match.groups()
                json_name = tag.partition(",")[0]
                if not json_name and tag.endswith(",inline"):
                    fields.append(f"{number}=>{prefix}.{go_type}")
                elif json_name:
                    fields.append(f"{number}={json_name}{'*' if go_type.startswith('*') else ''}")
    return found


def main(roots: list[str]) -> None:
    raw = load_types().raw
    everything: dict[str, str] = {}
    for root in roots:
        for directory in sorted(p for p in Path(root).glob("*/v[12]") if p.is_dir()):
            prefix = f"{directory.parent.name}.{directory.name}"
            everything |= of_package(directory, prefix)
    wanted, todo = {}, [name for name in everything if name in raw]
    while todo:
        name = todo.pop()
        if name in wanted or name not in everything:
            continue
        wanted[name] = everything[name]
        todo += [part.partition("=>")[2] for part in everything[name].split() if "=>" in part]
    json.dump(dict(sorted(wanted.items())), sys.stdout, indent=0)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
