"""The address of the page of ``pumice web`` on which a browser shows what a command explains, where a page is known."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from urllib.parse import urlencode

from pumice.wire import variables

FACTS, TOKEN = "cluster.json", "web-token"
"""Beside the kubeconfig of `pumice up`: facts for everybody, and the page's token for the owner alone."""


def address_with_token(data_dir: Path, where: str, view: str = "", **query: str) -> str:
    """Return the URL of a view, ``where`` being the page's ADDRESS:PORT; without the token for whoever may not read that."""
    with contextlib.suppress(OSError):
        query["token"] = (data_dir / TOKEN).read_text("utf-8").strip()
    return f"http://{where}/{view}{_query(query)}"


def page_link(kubeconfig: Path | None, view: str, **query: str) -> str:
    """Return the URL of a view: below ``PUMICE_WEB_URL``, else on the page of the cluster of `pumice up` that this kubeconfig
    is of; empty where there is neither."""
    base = os.environ.get(variables.WEB_URL, "").rstrip("/")
    if base:
        return f"{base}/{view}{_query(query)}"
    if kubeconfig is None:
        return ""
    try:
        facts = json.loads((kubeconfig.parent / FACTS).read_bytes())
        where = str(facts.get("web") or "")
    except (OSError, ValueError, AttributeError):
        return ""
    return address_with_token(kubeconfig.parent, where, view, **query) if where else ""


def print_page_link(kubeconfig: Path | None, view: str, **query: str) -> None:
    """Print it below what a command said, for people alone: scripts read no more than before."""
    link = page_link(kubeconfig, view, **query) if sys.stdout.isatty() else ""
    if link:
        print(f"in a browser: {link}")


def _query(words: dict[str, str]) -> str:
    said = {name: value for name, value in words.items() if value}
    return f"?{urlencode(said)}" if said else ""
