"""Kubernetes' own libraries: quantities, URLs, addresses, named formats ("CEL options, language features and libraries")."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from pumice.cel.values import NOTHING, CelError, OfItsKind, Optional, of
from pumice.cel.versions import Semver
from pumice.wire.quantity import parse_quantity

ADDRESSES: Final = (IPv4Address, IPv6Address, IPv4Network, IPv6Network)
_LOCAL_GROUPS: Final = (ip_network("224.0.0.0/24"), ip_network("ff02::/16"))
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_FORMATS: Final = {
    "dns1123Label": (_LABEL, 63), "dns1123Subdomain": (rf"{_LABEL}(\.{_LABEL})*", 253),
    "dns1035Label": (r"[a-z]([-a-z0-9]*[a-z0-9])?", 63),
    "qualifiedName": (r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", 317),
    "labelValue": (r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", 63),
    "dns1123LabelPrefix": (r"[a-z0-9]([-a-z0-9]*)?", 63),
    "uuid": (r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", 36), "byte": (r"[A-Za-z0-9+/]*={0,2}", 1 << 20),
    "date": (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", 10),
    "datetime": (r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9:.]+([Zz]|[+-][0-9:]+)", 64),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Quantity(OfItsKind):
    amount: Fraction
    text: str = ""

    def __str__(self) -> str:
        return self.text or str(self.amount)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.amount == other.amount

    def __hash__(self) -> int:
        return hash(self.amount)


@dataclass(frozen=True, slots=True)
class Url:
    text: str
    parts: SplitResult

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Format:
    pattern: str
    longest: int


def quantity(text: Any) -> Quantity:
    return Quantity(parse_quantity(of(text, str)), text)


def _amount(value: Any) -> Fraction:
    found: Fraction = of(value, Quantity).amount
    return found


def _added(value: Any, other: Any, sign: int = 1) -> Quantity:
    more = Fraction(other) if isinstance(other, int) and not isinstance(other, bool) else _amount(other)
    return Quantity(_amount(value) + sign * more)


def _order(value: Any, other: Any) -> int:
    """-1, 0 or 1: of quantities, and of versions."""
    if isinstance(value, Semver) and isinstance(other, Semver):
        return (value > other) - (value < other)
    return (_amount(value) > _amount(other)) - (_amount(value) < _amount(other))


def _as_integer(value: Any) -> int:
    amount = _amount(value)
    if amount.denominator != 1 or abs(amount) >= 2**63:
        raise CelError(f"cannot convert {value} to an integer")
    return int(amount)


def _is(make: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def is_one(text: Any) -> bool:
        try:
            make(text)
        except (ValueError, CelError):
            return False
        return True

    return is_one


def url(text: Any) -> Url:
    parts = urlsplit(of(text, str))
    if not (parts.scheme or text.startswith("/")) or any(sign.isspace() for sign in text):
        raise CelError(f"cannot parse {text!r} as a URL")
    return Url(text, parts)


def _url(read: Callable[[SplitResult], Any]) -> Callable[[Any], Any]:
    return lambda value: read(of(value, Url).parts)


def _host(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _address(text: Any) -> Any:
    if "%" in of(text, str):
        raise CelError(f"{text!r} has a zone")
    found = ip_address(text)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        raise CelError(f"{text!r} is an address of IPv4 in one of IPv6")
    return found


def _network(text: Any) -> Any:
    if "/" not in of(text, str) or "%" in text:
        raise CelError(f"{text!r} is no CIDR")
    return ip_network(text, strict=False)


def _ip(value: Any) -> Any:
    return value if isinstance(value, IPv4Address | IPv6Address) else _address(value)


def _contains_ip(network: Any, value: Any) -> bool:
    return _ip(value) in network


def _contains_network(network: Any, value: Any) -> bool:
    inner = value if isinstance(value, IPv4Network | IPv6Network) else _network(value)
    return inner.version == network.version and bool(inner.subnet_of(network))


def _is_global(value: Any) -> bool:
    broadcast = value == IPv4Address("255.255.255.255")
    return not (value.is_multicast or value.is_unspecified or value.is_loopback or value.is_link_local or broadcast)


def _problems(form: Any, text: Any) -> Optional:
    """``format.x().validate(text)``: what is wrong, or nothing."""
    found = []
    if len(of(text, str)) > form.longest:
        found.append(f"must be no more than {form.longest} characters")
    if re.fullmatch(form.pattern, text) is None:
        found.append("is not of this format")
    return Optional(True, found) if found else NOTHING


def _named(name: Any) -> Optional:
    found = _FORMATS.get(of(name, str))
    return NOTHING if found is None else Optional(True, Format(*found))


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "quantity": quantity, "isQuantity": _is(quantity), "url": url, "isURL": _is(url), "ip": _address, "isIP": _is(_address),
    "cidr": _network, "isCIDR": _is(_network),
}  # fmt: skip

NAMESPACES: Final[dict[str, Callable[..., Any]]] = {
    "ip.isCanonical": lambda text: str(_address(text)) == text, "format.named": _named,
    **{f"format.{name}": partial(Format, *found) for name, found in _FORMATS.items()},
}

METHODS: Final[dict[str, Callable[..., Any]]] = {
    "sign": lambda value: (_amount(value) > 0) - (_amount(value) < 0), "isInteger": lambda value: _amount(value).denominator == 1,
    "asInteger": _as_integer, "asApproximateFloat": lambda value: float(_amount(value)), "add": _added,
    "sub": lambda value, other: _added(value, other, -1), "isGreaterThan": lambda value, other: _order(value, other) > 0,
    "isLessThan": lambda value, other: _order(value, other) < 0, "compareTo": lambda value, other: _order(value, other),
    "getScheme": _url(lambda parts: parts.scheme), "getHost": _url(_host),
    "getHostname": _url(lambda parts: parts.hostname or ""),
    "getPort": _url(lambda parts: str(parts.port or "")), "getEscapedPath": _url(lambda parts: parts.path),
    "getQuery": _url(lambda parts: parse_qs(parts.query, keep_blank_values=True)),
    "family": lambda value: value.version, "isUnspecified": lambda value: value.is_unspecified,
    "isLoopback": lambda value: value.is_loopback, "isLinkLocalUnicast": lambda value: value.is_link_local,
    "isLinkLocalMulticast": lambda value: any(value.version == net.version and value in net for net in _LOCAL_GROUPS),
    "isGlobalUnicast": _is_global, "containsIP": _contains_ip, "containsCIDR": _contains_network,
    "prefixLength": lambda value: value.prefixlen, "masked": lambda value: value, "validate": _problems,
}  # fmt: skip
