"""The driver's counts are compared with regions, which tenants write, and with the owners of processes, which they cannot."""

from __future__ import annotations

import pytest
from kit.node_objects import A, B

from pumice.node.accounts import SLACK, Accounts, Granted, Sign, Tenant, Unaccounted, signs
from pumice.ports.cards import CardProcess
from pumice.ports.processes import Owner
from pumice.ports.region import DeviceUse, RegionReport, ReportedUse

MIB = 1 << 20
ID = "c" * 64
KEY = "u1", "train"


def tenant(total: int = 0, *processes: tuple[int, int, int], limit: int = 1000, sm: int = 50, card: str = A) -> Tenant:
    report = RegionReport("1.2", {card: ReportedUse(limit * MIB, sm, DeviceUse(total=total * MIB))}, processes)
    return Tenant([Granted(card, 1000 * MIB, 50)], report)


def accounts(process: CardProcess, owner: Owner | None, *tenants: Tenant) -> Accounts:
    keys = [KEY, ("u2", "other")]
    owners = {} if owner is None else {process.pid: owner}
    return Accounts([process], owners, dict(zip(keys, tenants, strict=False)), ["u1", "u2"], {ID: KEY})


OF_POD = Owner("u1", ID, 7, shared=False)
OUTSIDE = Owner(pid=900)


@pytest.mark.parametrize(
    ("owner", "given", "found"),
    [
        pytest.param(OF_POD, tenant(3000, (0, 7, 0)), [], id="its region knows of it"),
        pytest.param(OF_POD, Tenant([Granted(A, MIB)]), [Unaccounted(A, KEY, 3000 * MIB)], id="without a region"),
        pytest.param(OF_POD, tenant(3000, card=B), [Unaccounted(A, KEY, 3000 * MIB)], id="a card it was not given"),
        pytest.param(OF_POD, tenant(100), [Unaccounted(A, KEY, 2900 * MIB, region=True)], id="its region says too little"),
        pytest.param(Owner("u1", "", 7), tenant(), [Unaccounted(A, ("u1", ""), 3000 * MIB)], id="an unknown container of a pod"),
        pytest.param(OUTSIDE, tenant(), [Unaccounted(A, None, 3000 * MIB)], id="outside of all pods"),
        pytest.param(Owner("another node's"), tenant(), [Unaccounted(A, None, 3000 * MIB)], id="a pod that is not this node's"),
        pytest.param(OUTSIDE, tenant(3000, (0, 900, 0)), [], id="a container that shares the host's numbers"),
        pytest.param(None, tenant(), [], id="it has just ended: nobody knows whose it was"),
    ],
)  # fmt: skip
def test_a_byte_without_an_account_is_found_and_told_whose_it_is(owner, given, found):
    assert accounts(CardProcess(A, 900, 3000 * MIB), owner, given).unaccounted() == found


def test_a_tenant_that_claims_more_than_it_has_hides_nobody_else():
    rogue = Owner("u2", "d" * 64, 3, shared=False)
    liar = tenant(20_000, (0, 3, 900), (1, 900, 900))
    assert accounts(CardProcess(A, 900, 3000 * MIB), rogue, liar).unaccounted() == [Unaccounted(A, ("u2", ""), 3000 * MIB)]


def test_a_number_that_two_regions_claim_belongs_to_neither():
    both = tenant(3000, (0, 900, 0))
    assert accounts(CardProcess(A, 900, 3000 * MIB), OUTSIDE, both, both).unaccounted() == [Unaccounted(A, None, 3000 * MIB)]


def test_what_other_libraries_do_not_know_of_contexts_is_no_fault():
    assert accounts(CardProcess(A, 900, SLACK), OF_POD, tenant(0)).unaccounted() == []


def test_inside_a_slice_the_hardware_counts():
    assert accounts(CardProcess(A, 900, 3000 * MIB, instance=1), OF_POD, Tenant([])).unaccounted() == []


@pytest.mark.parametrize(
    ("slots", "reported"),
    [
        ([(4, 7, 0)], [(KEY, 4, 7, 900)]),
        ([(4, 7, 900)], []),
        ([(4, 7, 7)], []),  # the library found its own number in the driver's list
        ([(4, 8, 0)], []),
        ([(4, 7, 0), (5, 7, 0)], []),
    ],
)
def test_a_process_is_named_by_the_hosts_number_only_where_one_slot_lacks_it(slots, reported):
    assert list(accounts(CardProcess(A, 900, MIB), OF_POD, tenant(0, *slots)).host_pids()) == reported


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (tenant(), []),
        (tenant(limit=500, sm=20), []),
        (tenant(limit=1001), [Sign.MEMORY_LIMIT]),
        (tenant(limit=0), [Sign.MEMORY_LIMIT]),
        (tenant(sm=100), [Sign.CORE_LIMIT]),
        (tenant(sm=0), [Sign.CORE_LIMIT]),
        (tenant(limit=0, sm=0), [Sign.MEMORY_LIMIT, Sign.CORE_LIMIT]),
        (Tenant([Granted(A, MIB)]), []),
    ],
)
def test_limits_above_the_grant_speak_against_a_region(given, found):
    assert list(signs(given)) == found


BY_MPS = Tenant([Granted(A, 1000 * MIB, 50)], mps=True)


@pytest.mark.parametrize(
    ("owner", "given", "stray"),
    [
        pytest.param(OF_POD, BY_MPS, False, id="its server bounds it"),
        pytest.param(OUTSIDE, BY_MPS, False, id="nobody's, on a card that takes the server alone"),
        pytest.param(Owner("u2", "d" * 64, 3, shared=False), BY_MPS, True, id="a pod that was not given the card"),
        pytest.param(OF_POD, Tenant([Granted(B, MIB)], mps=True), True, id="another card than its own"),
        pytest.param(Owner(pid=900, mps=True), tenant(), False, id="a server of MPS"),
        pytest.param(Owner("u1", ID, 7, shared=False, mps=True), Tenant([Granted(A, MIB)]), True, id="a tenant of that name"),
    ],
)  # fmt: skip
def test_programs_of_mps_need_no_region_and_nobody_hides_behind_them(owner, given, stray):
    assert bool(accounts(CardProcess(A, 900, 3000 * MIB), owner, given).unaccounted()) is stray


def test_who_has_a_card_for_itself_needs_no_region_and_strangers_on_it_are_told():
    mine = Tenant([Granted(A, 4000 * MIB)], whole=True)
    found = accounts(CardProcess(A, 900, 3000 * MIB), OF_POD, mine)
    assert found.unaccounted() == []
    assert found.measured() == {(KEY, A): 3000 * MIB}
    assert accounts(CardProcess(A, 900, 3000 * MIB), OUTSIDE, mine).unaccounted() == [Unaccounted(A, None, 3000 * MIB)]


def test_of_a_container_without_a_region_the_drivers_figure_is_told_where_it_is_known_whose_it_is():
    assert accounts(CardProcess(A, 900, 3000 * MIB), OF_POD, BY_MPS).measured() == {(KEY, A): 3000 * MIB}
    assert accounts(CardProcess(A, 900, 3000 * MIB), OUTSIDE, BY_MPS).measured() == {}
    assert accounts(CardProcess(A, 900, 3000 * MIB), OF_POD, tenant()).measured() == {}
