"""The words that the outside sees, collected from the text of the sources: no module path and no identifier counts, so that moves
and renames change nothing here.

Every string that stands in the code (docstrings, annotations and names of types do not count) is sorted by its form. A string
that is put together of constants is resolved; what is put together of values is not seen.
"""

from __future__ import annotations

import ast
import gc
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("src", "lab/src")
C_SOURCES = ("native", "lab/native")
NOT_OURS = "_pb2.py"

FORMS: Mapping[str, str] = {
    "keys": r"[a-z0-9][a-z0-9.-]*\.(?:sh|io|com|dev|k8s\.io)(?:/[\w.*/-]*)?",
    "camel_case_words": r"[A-Z][A-Za-z0-9]{2,}",
    "fields": r"[a-z][a-z0-9]*(?:[A-Z][A-Za-z0-9]*)+",
    "environment": r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+",
    "hyphenated": r"[a-z][a-z0-9]*(?:-[a-z0-9]+)+",
    "paths": r"/[A-Za-z][\w/.*-]*",
    "dotted": r"(?!pumice(?:_\w+)?(?:\.[a-z_0-9]+)+$)[A-Za-z][\w-]*(?:\.[\w*-]+)+",
}
"""Form by subject: annotations, labels and resources; kinds, reasons and conditions; fields of objects; variables; names of
objects; paths of files and of HTTP; arguments of the configuration and names of files."""
_NAMING = frozenset({
    "TypeVar", "NewType", "ParamSpec", "cast", "TypeAliasType", "getattr", "setattr", "hasattr", "attrgetter",
    "Struct", "pack", "unpack", "pack_into", "unpack_from", "iter_unpack", "calcsize",
})  # fmt: skip
"""Calls whose strings are identifiers, or layouts of bytes."""
_GENERIC = frozenset({
    "Callable", "Mapping", "Iterator", "Iterable", "Sequence", "Union", "Optional", "list", "tuple", "dict", "type",
})  # fmt: skip
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log"})


@cache
def trees() -> tuple[ast.Module, ...]:
    found = (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py")))
    gc.disable()  # else it looks through a million nodes again and again, for six seconds of eight
    try:
        parsed = (ast.parse(path.read_text("utf-8")) for path in found if not path.name.endswith(NOT_OURS))
        return tuple(tree for tree in parsed if not _exports(tree))
    finally:
        gc.enable()


def _exports(tree: ast.Module) -> bool:
    """Return whether a module only says where others have its names."""
    return any(isinstance(line, ast.FunctionDef) and line.name == "__getattr__" for line in tree.body)


def of_form(subject: str) -> list[str]:
    """The strings of one form, each once."""
    form = re.compile(FORMS[subject])
    found = {text for text in strings() if form.fullmatch(text)}
    if subject == "environment":
        ours = re.compile(r"(?:CUDA|NVIDIA|PUMICE|ASCEND|VGPU|GPU|LIBCUDA)_[A-Z0-9_]+")
        found |= {text for text in c_strings() if ours.fullmatch(text)}
    if subject == "fields":
        found |= set(_struct_fields())
    return sorted(found)


def log_keys() -> list[str]:
    """Names of loggers, and keys of the form ``key=%s`` in what is logged."""
    found = set()
    for tree in trees():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
            name, first = _name(call.func), call.args[0]
            if name == "getLogger":
                found |= {f"logger {text}" for text in _texts(first)}
            elif name in _LOGGING:
                texts = [text for argument in call.args for text in _texts(argument)]
                found |= {key for text in texts for key in re.findall(r"(?:^|[ (])(\w+)=(?=[%{]|$)", text)}
    return sorted(found)


def choices() -> list[str]:
    """The values of enumerations, and of types that name their values."""
    found = set()
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any("Enum" in _name(base) for base in node.bases):
                found |= {text for line in node.body if isinstance(line, ast.Assign) for text in _texts(line.value)}
            elif isinstance(node, ast.Subscript) and _name(node.value) == "Literal":
                found |= set(_texts(node.slice))
    return sorted(text for text in found if text and " " not in text)


@cache
def strings() -> frozenset[str]:
    return frozenset(text for tree in trees() for text in _of(tree))


@cache
def c_strings() -> frozenset[str]:
    files = (path for source in C_SOURCES for kind in ("*.c", "*.h", "*.def") for path in (ROOT / source).rglob(kind))
    kept = (path for path in files if not {"tests", "build"} & set(path.relative_to(ROOT).parts))
    return frozenset(text for path in kept for text in re.findall(r'"([^"\\\n]*)"', path.read_text("utf-8")))


def _of(tree: ast.Module) -> Iterator[str]:
    skipped = set(_passed_over(tree))
    own = dict(_assigned(tree))
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr | ast.Constant):
            yield from _texts(node, own)
        waiting += ast.iter_child_nodes(node)


def _passed_over(tree: ast.Module) -> Iterator[int]:
    """Docstrings, annotations, names of types, and lists of what a module exports."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()):
                yield id(node.value)
            case ast.AnnAssign():
                yield id(node.annotation)
            case ast.arg(annotation=ast.AST()):
                yield id(node.annotation)
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.returns is not None:
                yield id(node.returns)
            case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__" | "__match_args__")]):
                yield id(node.value)
            case ast.Call() if _name(node.func) in _NAMING:
                yield from map(id, node.args)
            case ast.Subscript():
                yield from _quoted_types(node)


def _quoted_types(node: ast.Subscript) -> Iterator[int]:
    """``Callable[["Command"], None]`` names a type; ``names["kind"]`` is a key."""
    if _name(node.value) in _GENERIC:
        yield id(node.slice)


def _assigned(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What is assigned to a name at the top of a module."""
    for line in tree.body:
        match line:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                yield name, text
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
                yield name, text


@cache
def _constants() -> Mapping[str, str]:
    """The names that mean one text wherever they stand."""
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees():
        for name, text in _assigned(tree):
            found[name].add(text)
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def _texts(node: ast.AST, own: Mapping[str, str] | None = None) -> Iterable[str]:
    """The strings of an expression; one that is put together of constants, whole. ``own``: those of its module."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.JoinedStr():
            parts = [part.value if isinstance(part, ast.Constant) else _resolved(part, own or {}) for part in node.values]
            return ["".join(map(str, parts))] if all(part is not None for part in parts) else []
        case ast.Tuple() | ast.List() | ast.Set():
            return [text for element in node.elts for text in _texts(element, own)]
    return []


def _resolved(part: ast.AST, own: Mapping[str, str]) -> str | None:
    name = _name(part.value) if isinstance(part, ast.FormattedValue) else ""
    return own.get(name, _constants().get(name))


def _name(node: ast.AST) -> str:
    """The last word of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _struct_fields() -> Iterator[str]:
    """The fields of structures that are written in camelCase."""
    for node in _renamed_structs():
        for line in node.body:
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                head, *rest = line.target.id.rstrip("_").split("_")
                yield head + "".join(word.title() for word in rest)


def _renamed_structs() -> Iterable[ast.ClassDef]:
    """The classes with ``rename``, and those below them. A base of the same module comes before one of that name elsewhere."""
    by_tree = [{node.name: node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} for tree in trees()]
    found = {id(node): node for here in by_tree for node in here.values() if any(one.arg == "rename" for one in node.keywords)}
    before = 0
    while len(found) > before:
        before, names = len(found), {node.name for node in found.values()}
        for here in by_tree:
            for node in here.values():
                bases = [_name(base) for base in node.bases]
                if any(id(here[base]) in found if base in here else base in names for base in bases):
                    found[id(node)] = node
    return found.values()
