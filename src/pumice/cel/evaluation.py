"""From a tree to a function of variables: names are resolved and macros unfolded once, then run within a budget.

``&&`` and ``||`` are true to the language: an error on one side does not matter where the other one decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from lark import Token, Tree

from pumice.cel import conversions, kubernetes, lists, strings, times, versions
from pumice.cel.macros import MACROS, folded
from pumice.cel.operators import OPERATORS, contains, elements, field_of, item_of, lookup, map_key, negated
from pumice.cel.running import Budget, Env, Run, boolean, decided
from pumice.cel.syntax import bytes_of, parse, text_of
from pumice.cel.values import (
    HOST_METHODS,
    INT_MOST,
    NOTHING,
    CelError,
    CelType,
    Host,
    Message,
    Metered,
    Optional,
    Spend,
    Uint,
    length,
    of,
    type_of,
    whole,
)

TYPES: Final = {
    name: CelType(name) for name in ("int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type")
}

_STEP: Final = frozenset(("op", "path", "from", "value"))
"""The fields of a JSONPatch."""
LOOP: Final = 5
"""The cost of a loop for each element, besides that of its parts (the language's estimate of a comprehension)."""
ASK: Final = 10_000
"""The cost of an authorization check."""
FREE: Final = frozenset(("size", "type", "dyn", "hasValue", "value", "orValue", "or"))
"""Functions that look at no element of what they are given."""
LONGEST_NUMBER: Final = 20


@dataclass(frozen=True, slots=True)
class Program:
    text: str
    run: Run

    def __call__(self, variables: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Raises CelError. A variable may be a function without arguments: then it is worked out when it is first asked for."""
        return self.run(Env(variables, budget or Budget()))


@lru_cache(maxsize=512)
def compiled(text: str, names: frozenset[str]) -> Program:
    """Raises CelError for what is no expression, and for names and functions that nobody knows."""
    return Program(text, _Compiler(names).of(parse(text)))


@dataclass(slots=True)
class _Compiler:
    names: frozenset[str]

    def of(self, node: Tree[Any]) -> Run:
        found: Run = getattr(self, f"_{node.data}")(*node.children)
        return found

    def within(self, *names: str) -> _Compiler:
        return _Compiler(self.names | set(names))

    # -- literals and names ---------------------------------------------------------------------------------------

    def _int(self, token: Token) -> Run:
        return _always(_whole(token))

    def _uint(self, token: Token) -> Run:
        return _always(_whole(token[:-1], Uint()))

    def _float(self, token: Token) -> Run:
        return _always(float(token))

    def _string(self, token: Token) -> Run:
        return _always(text_of(token))

    def _bytes_(self, token: Token) -> Run:
        return _always(bytes_of(token))

    def _true(self) -> Run:
        return _always(True)

    def _false(self) -> Run:
        return _always(False)

    def _null(self) -> Run:
        return _always(None)

    def _name(self, token: Token) -> Run:
        name = str(token)
        if name in self.names:
            return lambda env: _variable(env, name)
        if name in TYPES:
            return _always(TYPES[name])
        raise CelError(f"undeclared reference to '{name}'")

    def _list_(self, *items: Tree[Any]) -> Run:
        return self._listed([self._element(item) for item in items])

    def _list_maybe(self, first: Tree[Any], *items: Tree[Any]) -> Run:
        return self._listed([(self.of(first), True), *(self._element(item) for item in items)])

    def _listed(self, items: list[tuple[Run, bool]]) -> Run:
        return lambda env: [value for run, maybe in items for value in elements(run(env), maybe)]

    def _map_(self, *entries: Tree[Any]) -> Run:
        runs = [(*self._element(entry.children[0]), self.of(entry.children[1])) for entry in entries]
        return lambda env: {map_key(key(env)): value for key, maybe, run in runs for value in elements(run(env), maybe)}

    def _element(self, node: Tree[Any]) -> tuple[Run, bool]:
        """The field, and whether it is optional (``?x``)."""
        return (self.of(node.children[0]), True) if node.data == "maybe" else (self.of(node), False)

    def _message(self, name: Tree[Any], fields: Tree[Any]) -> Run:
        type_ = _qualified(name)
        if type_ is None or not (type_ == "JSONPatch" or type_.split(".")[0] == "Object"):
            raise CelError(f"undeclared type '{type_}'")
        runs = [(str(field.children[0]), self.of(field.children[1])) for field in fields.children]
        if type_ == "JSONPatch" and (unknown := [field for field, _ in runs if field not in _STEP]):
            raise CelError(f"undefined field '{unknown[0]}'")
        return lambda env: Message(type_, {field: run(env) for field, run in runs})

    # -- operators ------------------------------------------------------------------------------------------------

    def _conditional(self, condition: Tree[Any], yes: Tree[Any], no: Tree[Any]) -> Run:
        when, then, otherwise = self.of(condition), self.of(yes), self.of(no)
        return lambda env: then(env) if boolean(when(env)) else otherwise(env)

    def _or_(self, *sides: Tree[Any]) -> Run:
        return self._either(sides, True)

    def _and_(self, *sides: Tree[Any]) -> Run:
        return self._either(sides, False)

    def _either(self, sides: Iterable[Tree[Any]], decides: bool) -> Run:
        runs = [self.of(side) for side in sides]
        return lambda env: decided((partial(run, env) for run in runs), decides)

    def _nots(self, *children: Any) -> Run:
        *signs, inner = children
        run, odd = self.of(inner), len(signs) % 2
        return lambda env: boolean(run(env)) != odd

    def _minuses(self, *children: Any) -> Run:
        *signs, inner = children
        if isinstance(inner, Tree) and inner.data == "int" and inner.children[0] == str(INT_MOST + 1):
            return _always(-(INT_MOST + 1))
        run, odd = self.of(inner), len(signs) % 2
        return lambda env: negated(run(env)) if odd else run(env)

    def _binary(self, left: Tree[Any], operator: Token, right: Tree[Any]) -> Run:
        first, second, compute = self.of(left), self.of(right), OPERATORS[operator]
        return lambda env: compute(env.budget, first(env), second(env))

    def _contained(self, left: Tree[Any], right: Tree[Any]) -> Run:
        first, second = self.of(left), self.of(right)
        return lambda env: contains(env.budget, second(env), first(env))

    # -- into values ----------------------------------------------------------------------------------------------

    def _select(self, inner: Tree[Any], name: Token) -> Run:
        run, field = self.of(inner), name.strip("`")
        return lambda env: field_of(run(env), field)

    def _select_optional(self, inner: Tree[Any], name: Token) -> Run:
        run, field = self.of(inner), name.strip("`")
        return lambda env: lookup(run(env), field)

    def _index(self, inner: Tree[Any], key: Tree[Any]) -> Run:
        run, at = self.of(inner), self.of(key)
        return lambda env: item_of(run(env), at(env))

    def _index_optional(self, inner: Tree[Any], key: Tree[Any]) -> Run:
        run, at = self.of(inner), self.of(key)
        return lambda env: lookup(run(env), at(env))

    # -- calls and macros -----------------------------------------------------------------------------------------

    def _call(self, name: Token, arguments: Tree[Any]) -> Run:
        given = arguments.children
        if name == "has" and len(given) == 1:
            return self._has(given[0])
        function = FUNCTIONS.get(str(name))
        if function is None:
            raise CelError(f"undeclared reference to '{name}'")
        return _called(function, [self.of(argument) for argument in given], free=name in FREE)

    def _has(self, asked: Any) -> Run:
        if not isinstance(asked, Tree) or asked.data != "select":
            raise CelError("invalid argument to has() macro")
        inner, field = self.of(asked.children[0]), str(asked.children[1]).strip("`")
        return lambda env: lookup(inner(env), field).there

    def _method(self, inner: Tree[Any], name: Token, arguments: Tree[Any]) -> Run:
        given = arguments.children
        space = _qualified(inner)
        if space is not None and space.split(".")[0] not in self.names:
            if space == "cel" and name == "bind" and len(given) == 3:
                return self._bind(*given)
            function = NAMESPACES.get(f"{space}.{name}")
            if function is not None:
                return _called(function, [self.of(argument) for argument in given])
        if name in ("optMap", "optFlatMap") and len(given) == 2 and given[0].data == "name":
            return self._when_there(inner, *given, wraps=name == "optMap")
        macro = MACROS.get((str(name), len(given)))
        if macro is not None and all(isinstance(part, Tree) and part.data == "name" for part in given[: macro.names]):
            names = [str(part.children[0]) for part in given[: macro.names]]
            inside = self.within(*names)
            parts = given[macro.names :]
            cost = LOOP + sum(1 for part in parts for _ in part.iter_subtrees())
            return folded(macro, self.of(inner), names, [inside.of(part) for part in parts], cost)
        method = METHODS.get(str(name))
        if method is None and name not in HOST_METHODS:
            raise CelError(f"undeclared reference to '{name}'")
        asked = Metered(partial(_requested, str(name), method))
        return _called(asked, [self.of(inner), *(self.of(argument) for argument in given)], free=name in FREE)

    def _bind(self, name: Tree[Any], value: Tree[Any], body: Tree[Any]) -> Run:
        if name.data != "name":
            raise CelError("cel.bind() variable names must be simple identifiers")
        variable, given = str(name.children[0]), self.of(value)
        run = self.within(variable).of(body)
        return lambda env: run(env.inner({variable: given(env)}))

    def _when_there(self, inner: Tree[Any], name: Tree[Any], body: Tree[Any], *, wraps: bool) -> Run:
        optional, variable = self.of(inner), str(name.children[0])
        then = self.within(variable).of(body)

        def run(env: Env) -> Any:
            value = optional(env)
            if not isinstance(value, Optional):
                raise CelError(f"no such overload: {type_of(value)} is no optional value")
            if not value.there:
                return NOTHING
            found = then(env.inner({variable: value.value}))
            return Optional(True, found) if wraps else found

        return run


def _whole(digits: str, like: Any = 0) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise CelError("integer overflow")
    return whole(int(digits, 16 if digits[:2] in ("0x", "0X") else 10), like)


def _always(value: Any) -> Run:
    return lambda env: value


def _variable(env: Env, name: str) -> Any:
    value = env.variables[name]
    return value() if callable(value) else value


def _qualified(node: Tree[Any]) -> str | None:
    """Return a name, or fields of one, as text: ``container.image``. None where it is anything else."""
    if node.data == "name":
        return str(node.children[0])
    if node.data == "select":
        outer = _qualified(node.children[0])
        return None if outer is None else f"{outer}.{node.children[1]}"
    return None


def _called(function: Callable[..., Any] | Metered, runs: list[Run], *, free: bool = False) -> Run:
    def run(env: Env) -> Any:
        given = [argument(env) for argument in runs]
        env.budget.spend(1 if free else 1 + sum(map(length, given)))
        try:
            found = function.compute(env.budget.spend, *given) if isinstance(function, Metered) else function(*given)
        except CelError:
            raise
        except (TypeError, AttributeError):
            raise CelError(f"no such overload: ({', '.join(map(type_of, given))})") from None
        except (ValueError, OverflowError, ArithmeticError, IndexError) as problem:
            raise CelError(str(problem)) from None
        env.budget.spend(0 if free else length(found))
        return found

    return run


def _requested(name: str, method: Callable[..., Any] | Metered | None, spend: Spend, value: Any, *given: Any) -> Any:
    if isinstance(value, Host):
        spend(ASK if name == "check" else 0)
        return value.asked(name, *given)
    if method is None:
        raise TypeError
    return method.compute(spend, value, *given) if isinstance(method, Metered) else method(value, *given)


# -- The functions of expressions: the language's own, those of its extensions, and Kubernetes' ----------------------

# A function is called by its name with its arguments, a method with what it is called on before them. They raise
# TypeError where the arguments are of other types, and CelError, ValueError or OverflowError where their values
# will not do.


def _size(value: Any) -> int:
    return len(of(value, str, bytes, list, Mapping))


def _among(*given: Any) -> Any:
    return given[0] if len(given) == 1 and isinstance(given[0], list) else list(given)


def _value(optional: Any) -> Any:
    if not of(optional, Optional).there:
        raise CelError("optional.none() dereference")
    return optional.value


FUNCTIONS: Final[dict[str, Callable[..., Any] | Metered]] = {
    "size": _size, **conversions.FUNCTIONS, **strings.FUNCTIONS, **times.FUNCTIONS, **kubernetes.FUNCTIONS,
    **versions.FUNCTIONS,
}  # fmt: skip

NAMESPACES: Final[dict[str, Callable[..., Any] | Metered]] = {
    "optional.of": lambda value: Optional(True, value), "optional.none": lambda: NOTHING,
    "optional.ofNonZeroValue": lambda value: Optional(True, value) if value else NOTHING,
    "math.greatest": lambda *given: lists.greatest(_among(*given)), "math.least": lambda *given: lists.least(_among(*given)),
    "math.abs": lambda value: abs(of(value, int, float)), "math.ceil": lambda value: float(math.ceil(of(value, float))),
    "math.floor": lambda value: float(math.floor(of(value, float))),
    **strings.NAMESPACES, **lists.NAMESPACES, **kubernetes.NAMESPACES,
}  # fmt: skip

METHODS: Final[dict[str, Callable[..., Any] | Metered]] = {
    "size": _size, "hasValue": lambda value: of(value, Optional).there, "value": _value,
    "orValue": lambda value, other: value.value if of(value, Optional).there else other,
    "or": lambda value, other: value if of(value, Optional).there else of(other, Optional),
    **strings.METHODS, **lists.METHODS, **times.METHODS, **kubernetes.METHODS,
    **versions.METHODS,
}  # fmt: skip
