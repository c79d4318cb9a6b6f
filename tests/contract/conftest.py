"""Every contract test runs on the embedded API server, and on the real one when KUBEBUILDER_ASSETS is set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from kit.control_plane import KINDS, Api, control_plane

_count = itertools.count(1)


@pytest.fixture(scope="session", params=KINDS)
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with control_plane(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


@pytest.fixture
def namespace(api: Api) -> str:
    """A namespace of the test's own."""
    name = f"test-{next(_count)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name
