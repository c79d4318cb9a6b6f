"""The waits that the limiter is held to, on launches whose demands can be counted by hand."""

from __future__ import annotations

import numpy
import pytest
from kit.launch_waits import worst_excess_ms

MS = 1_000_000


def rows(*launches: tuple[int, int, int]) -> numpy.ndarray:
    """Asked, returned, length, in ms."""
    return numpy.array(launches, dtype=numpy.uint64).reshape(-1, 3) * MS


def worker(tenant: str, *served_ms: int) -> dict[str, object]:
    return {"tenant": tenant, "served": [ms * MS for ms in served_ms]}


@pytest.mark.parametrize(("returned", "excess"), [(20, 0), (27, 7)])
def test_what_its_own_work_takes_to_be_paid_for_is_the_limits(returned: int, excess: int) -> None:
    """10 ms at half of the card are paid for after 20."""
    alone = worker("a", *range(40))
    assert worst_excess_ms([alone], [rows((0, 0, 10), (1, returned, 10))], [50], 0) == pytest.approx(excess)


def test_a_sibling_that_goes_first_makes_the_next_launch_wait_as_long_as_its_work_is_unpaid() -> None:
    served = worker("a", *[0] * 60), worker("a", *[0] * 60)
    launches = rows((0, 0, 10), (1, 45, 10)), rows((0, 20, 10))
    assert worst_excess_ms(served, launches, [50, 50], 0) == pytest.approx(5)  # of another worker: paid at 40


def test_the_kernel_of_another_tenant_that_runs_is_waited_for_and_the_next_one_is_not() -> None:
    other = worker("b", *range(20), *[20] * 20)
    launches = rows((3, 15, 1)), rows((0, 0, 8), (0, 0, 12))
    excess = worst_excess_ms([worker("a", *[0] * 40), other], launches, [50, 100], 0)
    assert excess == pytest.approx(8, abs=1)  # the first of 8 ms ends at 8 by the looks of each ms


def test_launches_before_the_lengths_are_known_are_left_out() -> None:
    alone = worker("a", *range(200))
    assert worst_excess_ms([alone], [rows((0, 90, 10), (120, 120, 10))], [50], 100) == 0
