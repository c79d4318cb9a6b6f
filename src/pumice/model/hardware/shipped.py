"""The tables of facts beside this file. Their parser is loaded when one is asked for: most programs ask for none."""

from __future__ import annotations

from typing import Any


def table(name: str) -> dict[str, Any]:
    import tomllib
    from importlib import resources

    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))
