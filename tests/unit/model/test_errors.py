"""Our errors are one tree, and it is drawn as it is."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pumice
import pumice_jobs
from pumice.model import errors


def drawn() -> dict[str, str]:
    """Each class of the drawing and the one above it."""
    above: dict[int, str] = {}
    found = {}
    for indent, name in re.findall(r"^ {4}((?:[│ ]   )*(?:[├└]── )?)(\w+)", errors.__doc__ or "", re.M):
        depth = len(indent) // 4
        above[depth] = name
        if depth:
            found[name] = above[depth - 1]
    return found


def test_every_error_of_ours_stands_in_the_drawing_under_what_it_descends_from() -> None:
    for package in (pumice, pumice_jobs):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and "_pb2" not in module.name:
                importlib.import_module(module.name)
    importlib.import_module("pumice_lab.machine.native")  # the laboratory's one, which nothing of the product imports
    found = {}
    waiting = [errors.PumiceError]
    while waiting:
        above = waiting.pop()
        for below in above.__subclasses__():
            waiting.append(below)
            if not below.__name__.startswith("_"):
                found[below.__name__] = above.__name__
    assert drawn() == found
