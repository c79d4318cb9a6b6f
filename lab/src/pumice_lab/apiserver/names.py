"""Formats of names, label keys and label values (Kubernetes "Object Names and IDs", "Labels and Selectors")."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from pumice_lab.apiserver.errors import bad_request

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

DNS_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end "
    "with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
DNS_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
    "an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def bad_label(text: str) -> str:
    """Return why the text is no DNS-1123 label; empty when it is one. The same for the functions below."""
    return _too_long(text, 63) or ("" if _LABEL.fullmatch(text) else DNS_LABEL)


def bad_1035_label(text: str) -> str:
    return _too_long(text, 63) or ("" if _LABEL_1035.fullmatch(text) else DNS_1035)


def bad_subdomain(text: str) -> str:
    return _too_long(text, 253) or ("" if _SUBDOMAIN.fullmatch(text) else DNS_SUBDOMAIN)


def bad_address(text: str) -> str:
    try:
        usual = str(ipaddress.ip_address(text))
    except ValueError:
        return "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
    return "" if text == usual else f'must be in canonical form ("{usual}")'


def bad_port_name(text: str) -> str:
    """A name of a port as IANA has them."""
    if why := _too_long(text, 15):
        return why
    if not re.fullmatch(r"[a-z0-9-]+", text):
        return "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", text):
        return "must contain at least one letter (a-z)"
    if "--" in text:
        return "must not contain consecutive hyphens"
    return "must not begin or end with a hyphen" if text.startswith("-") or text.endswith("-") else ""


def bad_path_segment(text: str) -> str:
    """RBAC and a few other names are only kept out of URL syntax."""
    if text in (".", ".."):
        return f"may not be '{text}'"
    return next((f"may not contain '{sign}'" for sign in "/%" if sign in text), "")


def bad_qualified(key: str) -> str:
    """A label or annotation key or a resource name: ``[PREFIX/]NAME``."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or bad_subdomain(prefix)):
        return f"prefix part {bad_subdomain(prefix) if prefix else 'must be non-empty'}"
    if not name:
        return "name part must be non-empty"
    if why := _too_long(name, 63):
        return f"name part {why}"
    return "" if _QUALIFIED.fullmatch(name) else QUALIFIED


def bad_label_value(value: str) -> str:
    return _too_long(value, 63) or ("" if not value or _QUALIFIED.fullmatch(value) else LABEL_VALUE)


def _too_long(text: str, most: int) -> str:
    return f"must be no more than {most} characters" if len(text) > most else ""


def check_name(metadata: Mapping[str, Any], name: str) -> None:
    """Raises BadRequest where an object is not called what its URL calls it."""
    said = metadata.get("name")
    if not said:
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if said != name:
        raise bad_request(f"the name of the object ({said}) does not match the name on the URL ({name})")
