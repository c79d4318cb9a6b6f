"""Types as far as a text alone tells them, and mistakes that no value could mend (cel-spec, "Gradual Type Checking").

What is not told here is dynamic: then only running shows. Lists and maps say nothing of what is in them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from lark import Tree

from pumice.cel.macros import MACROS
from pumice.cel.values import CelError


@dataclass(frozen=True, slots=True)
class Type:
    name: str
    fields: Mapping[str, Type] = field(default_factory=dict)
    """Of a struct: no others can be asked for."""


DYN, BOOL, INT, UINT, DOUBLE = Type("dyn"), Type("bool"), Type("int"), Type("uint"), Type("double")
STRING, BYTES, NULL, LIST, MAP = Type("string"), Type("bytes"), Type("null_type"), Type("list"), Type("map")
_LITERALS: Final = {"int": INT, "uint": UINT, "float": DOUBLE, "string": STRING, "bytes_": BYTES, "true": BOOL, "false": BOOL,
                    "null": NULL, "list_": LIST, "list_maybe": LIST, "map_": MAP}  # fmt: skip
_NUMBERS: Final = (INT, UINT, DOUBLE)
_ORDERED: Final = (*_NUMBERS, STRING, BYTES, BOOL)
_PLAIN: Final = (*_ORDERED, LIST, MAP)
_ADDED: Final = (*_NUMBERS, STRING, BYTES, LIST)
_CALLS: Final = {"has": BOOL, "size": INT, "string": STRING, "int": INT, "uint": UINT, "double": DOUBLE, "bool": BOOL,
                 "bytes": BYTES}  # fmt: skip
_METHODS: Final = {
    **dict.fromkeys(("startsWith", "endsWith", "matches", "contains", "all", "exists", "exists_one", "hasValue"), BOOL),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "replace", "substring", "join", "format"), STRING),
    **dict.fromkeys(("map", "filter", "split"), LIST), "size": INT,
}  # fmt: skip
_OF_STRINGS: Final = ("startsWith", "endsWith", "matches")


def struct(**fields: Type) -> Type:
    return Type("object", fields)


def checked(tree: Tree[Any], names: Mapping[str, Type]) -> Type:
    """The type of an expression that compiles. Raises CelError."""
    return _Checker(names).of(tree)


@dataclass(slots=True)
class _Checker:
    names: Mapping[str, Type]

    def of(self, node: Tree[Any]) -> Type:
        """Of a node without a rule of its own the parts are looked at, and nothing is told."""
        rule = getattr(self, f"_{node.data}", None)
        if rule is not None:
            found: Type = rule(*node.children)
            return found
        for child in node.children:
            if isinstance(child, Tree):
                self.of(child)
        return _LITERALS.get(str(node.data), DYN)

    def _name(self, token: str) -> Type:
        return self.names.get(str(token), DYN)

    def _select(self, inner: Tree[Any], name: str) -> Type:
        outer, key = self.of(inner), str(name).strip("`")
        if outer.fields:
            if key not in outer.fields:
                raise CelError(f"undefined field '{key}'")
            return outer.fields[key]
        if outer in _ORDERED:
            raise CelError(f"type '{outer.name}' does not support field selection")
        return DYN

    def _binary(self, left: Tree[Any], operator: str, right: Tree[Any]) -> Type:
        first, second = self.of(left), self.of(right)
        known = first in _PLAIN and second in _PLAIN
        match str(operator):
            case "==" | "!=":
                fits, result = first == second, BOOL
            case "<" | "<=" | ">" | ">=":
                fits, result = (first == second and first in _ORDERED) or (first in _NUMBERS and second in _NUMBERS), BOOL
            case "+":
                fits, result = first == second and first in _ADDED, first
            case "%":
                fits, result = first == second and first in (INT, UINT), first
            case _:
                fits, result = first == second and first in _NUMBERS, first
        if known and not fits:
            raise _no_overload(f"_{operator}_", first, second)
        return result if known or result == BOOL else DYN

    def _or_(self, *sides: Tree[Any]) -> Type:
        return self._logical(*sides)

    def _and_(self, *sides: Tree[Any]) -> Type:
        return self._logical(*sides)

    def _logical(self, *sides: Tree[Any]) -> Type:
        for found in map(self.of, sides):
            if found in _PLAIN and found != BOOL:
                raise CelError(f"expected type 'bool' but found '{found.name}'")
        return BOOL

    def _nots(self, *children: Any) -> Type:
        found = self.of(children[-1])
        if found in _PLAIN and found != BOOL:
            raise _no_overload("!_", found)
        return BOOL

    def _contained(self, left: Tree[Any], right: Tree[Any]) -> Type:
        first, second = self.of(left), self.of(right)
        if second in _ORDERED:
            raise _no_overload("@in", first, second)
        return BOOL

    def _conditional(self, condition: Tree[Any], yes: Tree[Any], no: Tree[Any]) -> Type:
        self._logical(condition)
        first, second = self.of(yes), self.of(no)
        if first in _PLAIN and second in _PLAIN and first != second:
            raise _no_overload("_?_:_", BOOL, first, second)
        return first if first == second else DYN

    def _call(self, name: str, arguments: Tree[Any]) -> Type:
        given = [self.of(argument) for argument in arguments.children]
        if name == "size" and given and given[0] in (*_NUMBERS, BOOL):
            raise _no_overload("size", *given)
        return _CALLS.get(str(name), DYN)

    def _method(self, inner: Tree[Any], name: str, arguments: Tree[Any]) -> Type:
        on, given, word = self.of(inner), list(arguments.children), str(name)
        bound = [str(part.children[0]) for part in given if part.data == "name"]
        macro = word in ("bind", "optMap", "optFlatMap") or (word, len(given)) in MACROS
        inside = _Checker({**self.names, **dict.fromkeys(bound, DYN)}) if macro else self
        found = [inside.of(part) for part in given]
        if word in _OF_STRINGS and any(each in _PLAIN and each != STRING for each in (on, *found)):
            said = ", ".join(each.name for each in found)
            raise CelError(f"found no matching overload for '{word}' applied to '{on.name}.({said})'")
        return _METHODS.get(word, DYN)


def _no_overload(operator: str, *types: Type) -> CelError:
    return CelError(f"found no matching overload for '{operator}' applied to '({', '.join(each.name for each in types)})'")
