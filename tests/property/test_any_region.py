"""A region is written by its tenant: no content at all breaks who reads it."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.region_files import Proc, region_bytes, write

from pumice.adapters.region import read_region
from pumice.ports.region import BadRegion, RegionSnapshot


@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    version=st.sampled_from(["0", "1.1", "1.2"]),
    seed=st.integers(0, 2**32),
    cut=st.one_of(st.none(), st.integers(0, 2008953)),
)
def test_no_content_at_all_breaks_the_reader(tmp_path, version, seed, cut):
    rng = random.Random(seed)
    data = region_bytes(version, procs=(Proc(),))
    for _ in range(rng.randrange(1, 40)):
        place = rng.choice([rng.randrange(0, 5000), rng.randrange(len(data) - 200, len(data) - 8)])
        data[place : place + 4] = rng.randbytes(4)
    if rng.random() < 0.8:
        data[0:4] = region_bytes(version)[0:4]
    path = write(tmp_path / "x", bytes(data[:cut]))
    try:
        seen = read_region(path)
    except BadRegion:
        return
    assert isinstance(seen, RegionSnapshot)
    assert len(seen.devices) <= 16
    assert len(seen.processes) <= 1024
