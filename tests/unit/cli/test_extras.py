"""The advice about a missing package: never a name of ours in an index, which anybody may hold."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pumice.cli.extras import BROUGHT_BY, Installation, brings, this_installation

REQUIRES = ("msgspec>=0.19", 'aiohttp>=3.10; extra == "kubernetes"', "grpcio>=1.49; extra == 'kubernetes'",
            'pytest>=8; extra == "dev"')  # fmt: skip
WHEEL = "/home/a b/dist/pumice-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize(("of", "extra", "command"), [
    (Installation("/v/bin/python", WHEEL), "kubernetes", f"/v/bin/python -m pip install '{WHEEL}[kubernetes]'"),
    (Installation("/v/bin/python", "/src/pumice", editable=True), "kubernetes",
     "/v/bin/python -m pip install -e '/src/pumice[kubernetes]'"),
    (Installation("/v/bin/python", WHEEL), "", f"/v/bin/python -m pip install --force-reinstall '{WHEEL}'"),
    (Installation("/v/bin/python", requires=REQUIRES), "kubernetes",
     "/v/bin/python -m pip install 'aiohttp>=3.10' 'grpcio>=1.49'"),
    (Installation("/p/bin/python", WHEEL, requires=REQUIRES, pipx=True), "kubernetes",
     "pipx inject pumice 'aiohttp>=3.10' 'grpcio>=1.49'"),
    (Installation("/v/bin/python"), "kubernetes", ""), (Installation("/v/bin/python", requires=REQUIRES), "", ""),
])  # fmt: skip
def test_a_missing_package_is_brought_by_the_wheel_that_is_here_or_by_its_own_name(
    of: Installation, extra: str, command: str
) -> None:
    said = brings(extra, of)
    assert said == (f"{command} brings it" if command else "install Pumice again from its wheel or source tree")


@pytest.mark.parametrize("extra", ["", *BROUGHT_BY])
def test_no_advice_asks_an_index_for_a_package_of_our_name(extra: str) -> None:
    for source in ("", WHEEL):
        for pipx in (False, True):
            said = brings(extra, Installation("/v/bin/python", source, requires=REQUIRES, pipx=pipx))
            assert not re.search(r"install (--force-reinstall |-e )?'?pumice|inject pumice( |$)['\"]?pumice", said), said


def test_a_source_tree_knows_where_it_is() -> None:
    here = this_installation()
    assert here.python
    assert any("aiohttp" in line for line in here.requires)


def test_whatever_a_client_of_the_cluster_imports_first_the_advice_names_its_extra() -> None:
    """In an installation without the extra its first import fails, whichever that is."""
    code = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] not in {*sys.stdlib_module_names, 'pumice', 'msgspec', 'yaml', 'rich', 'pynvml'}:
            raise ModuleNotFoundError(f'No module named {name!r}', name=name)
sys.meta_path.insert(0, Nothing())
from pumice.cli.extras import BROUGHT_BY
try:
    import pumice.adapters.kube
except ModuleNotFoundError as error:
    assert error.name in BROUGHT_BY['kubernetes'], error.name
else:
    raise AssertionError('nothing was missing')
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
