"""The worked examples of docs/reference/ascend-mindcluster.md, by their numbers, and upstream's defects that a scheduler
decides."""

from __future__ import annotations

import pytest
from kit.device_world import TinyLedger
from kit.npu_core_world import chips, core_device_type, core_node, core_pod, device_info

from pumice.audit.auditor import CHIPS
from pumice.devices.protocol import Fit
from pumice.model.hardware.npu import Dvpp, slice_kinds
from pumice.model.refusal import FitError, Refusal
from pumice.wire.device_reports import check_code
from pumice.wire.mindcluster import RealSlice, parse_real_slice, render_real_slice

NOW = 1_700_000_000_000_000_000
P310 = slice_kinds()["Ascend310P"]
RUNNING = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}


def ledger(*nodes, **settings):
    books = TinyLedger(core_device_type(**settings))
    for node in nodes or (core_node("n1"),):
        books.add_node(node)
    return books


def real(template, chip=0, group=0, number=100):
    return render_real_slice(RealSlice("Ascend310P", P310.templates[template].word, number, chip, group))


def hold(books, name, text, made="", node="n1", **more):
    """A pod that runs with this decision; ``made``: what the node's plugin says of it."""
    notes = {"huawei.com/npu-core": text, **({"huawei.com/AscendReal": made} if made else {})}
    template = P310.templates.get(text.partition("-")[2])
    cores = template.cores if template else 8 * len(text.split(","))
    pod = core_pod(name, cores, annotations=notes, node=node, status=RUNNING, **more)
    return books.replay(pod, node)


def written(books, fit):
    notes = books.device_type.annotations(fit.allocation, NOW)
    assert notes["predicate-time"] == str(NOW)
    return notes["huawei.com/npu-core"]


def device_request(books, cores, level="low", dvpp="null", node="n1", name="new"):
    """Return the annotations for such a pod, or its refusal."""
    found = books.try_pod(core_pod(name, cores, level=level, dvpp=dvpp), node)
    return written(books, found) if isinstance(found, Fit) else found


def with_slices(*slices):
    """One chip with these slices on it, a vGroup each (four at most), all of them made."""
    books = ledger()
    for number, template in enumerate(slices):
        hold(books, f"held{number}", f"0-{template}", real(template, group=min(number, 3), number=100 + number))
    return books


REQUESTS = (
    (1, "low", "null"), (2, "low", "null"), (2, "high", "null"), (4, "low", "null"), (4, "high", "null"), (4, "low", "yes"),
    (4, "low", "no"),
)  # fmt: skip
FIRST = ("vir01", "vir02_1c", "vir02", "vir04_3c", "vir04", "vir04_4c_dvpp", "vir04_3c_ndvpp")
SMALLER = {"vir02": "vir02_1c", "vir04": "vir04_3c"}

TABLE = [
    ("B1", (), "yyyyyyy"), ("B2", ("vir04",), "yyyydny"), ("B3", ("vir04", "vir02"), "yydnnnn"),
    ("B4", ("vir04_4c_dvpp",), "nnnnnny"), ("B5", ("vir04_3c_ndvpp",), "yyyyyyy"), ("B6", ("vir04_3c",), "yyyyyny"),
    ("B7", ("vir04_3c",) * 2, "nnnnnnn"), ("B8", ("vir01",) * 3, "yyynnnn"), ("B9", ("vir01",) * 4, "ynnnnnn"),
    ("B10", ("vir01",) * 7, "nnnnnnn"), ("B11", ("vir02_1c",) * 4, "nnnnnnn"), ("B12", ("vir02",) * 3, "yydnnnn"),
]  # fmt: skip


@pytest.mark.parametrize(("example", "slices", "outcome"), TABLE, ids=[row[0] for row in TABLE])
def test_what_a_chip_with_slices_takes_yet(example, slices, outcome):
    """y: the first template; d: the smaller one; n: nothing."""
    books = with_slices(*slices)
    for request, template, expected in zip(REQUESTS, FIRST, outcome, strict=True):
        found = device_request(books, *request)
        wanted = {"y": f"0-{template}", "d": f"0-{SMALLER.get(template)}"}.get(expected)
        assert (found == wanted) if wanted else isinstance(found, FitError), (example, request, found)


def test_b13_a_slice_goes_to_the_fullest_chip_that_takes_it_and_whole_chips_are_empty_ones():
    books = ledger(core_node("n1", 2))
    hold(books, "a", "1-vir04", real("vir04", chip=1, number=116))
    assert device_request(books, 2) == "1-vir02_1c"
    assert device_request(books, 8) == "0"


def test_b14_nothing_is_put_on_a_chip_while_its_slice_is_in_the_making():
    books = ledger()
    hold(books, "a", "0-vir02_1c")
    refused = device_request(books, 4)
    assert isinstance(refused, FitError)
    assert not refused.final
    assert "selectChipFromNodeSegment available chip not found for req 4" in refused.text
    assert refused.cards[0].text == "a slice is in the making there"
    hold(books, "a", "0-vir02_1c", "Ascend310P-2c.1cpu-100-0_0")
    assert device_request(books, 4) == "0-vir04_3c"


def test_b15_only_the_same_template_joins_a_node_with_one_in_the_making():
    books = ledger(core_node("n1", 2))
    hold(books, "a", "0-vir02_1c")
    assert device_request(books, 2) == "1-vir02_1c"
    refused = device_request(books, 4)
    assert isinstance(refused, FitError)
    assert "not rewrite" in refused.text
    assert refused.detail == "in the making: vir02_1c"
    hold(books, "a", "0-vir02_1c", real("vir02_1c"))
    assert device_request(books, 4) == "0-vir04_3c"


def test_b16_two_whole_chips():
    books = ledger(core_node("n1", 2))
    assert device_request(books, 16) == "0,1"
    hold(books, "a", "1-vir01", real("vir01", chip=1, number=116))
    refused = device_request(books, 16)
    assert isinstance(refused, FitError)
    assert device_request(books, 8) == "0"
    hold(books, "b", "0-vir01", real("vir01"))
    assert "selectChipFromNodeWhole free whole chip 0 not enough for req 1" in refusal(device_request(books, 8))


def refusal(found):
    assert isinstance(found, FitError)
    return found.text


def test_b17_a_whole_chip_takes_all_of_its_cpus():
    books = ledger(core_node("n1", 2))
    fit = books.place(core_pod("a", 8), "n1")
    assert [
        (container_device.memory, container_device.cores) for container_device in fit.allocation.container_devices
    ] == [(8, 7)]
    fit = books.place(core_pod("b", 16), "n1")
    assert isinstance(fit, FitError)


def test_b18_an_unhealthy_chip_is_no_whole_chip_though_the_node_offers_its_cores():
    node = core_node("n1", 2, info=device_info(chips(0), chips(1)))
    books = ledger(node)
    assert books.inventories["n1"].config.listed == (True, False)
    refused = device_request(books, 16)
    assert isinstance(refused, FitError)
    assert refused.final
    assert device_request(books, 8) == "0"


def test_b19_a_node_with_fewer_idle_cores_than_asked_for():
    books = with_slices("vir04", "vir01")
    assert refusal(device_request(books, 4)) == "preCheckNodePredicate failure: node not meet task request huawei.com/npu-core:4"


def test_b20_a_label_that_means_nothing_is_refused_for_slices_and_not_read_for_whole_chips():
    refused = device_request(ledger(), 4, dvpp="maybe")
    assert isinstance(refused, Refusal)
    assert refused.text.startswith("err dvpp value:maybe")
    assert device_request(ledger(), 8, dvpp="maybe") == "0"


def test_b21_the_fullest_node_without_a_downgrade_comes_first():
    def worth(placement, cores=2, level="low"):
        books = ledger(core_node("n1", 3), weight=1)
        for number, text in enumerate(placement):
            chip, _, template = text.partition("-")
            hold(books, f"held{number}", text, real(template, int(chip), number=100 + number) if template else "")
        return books.try_pod(core_pod("new", cores, level=level), "n1").score

    idle_16, idle_6, idle_10 = ["0"], ["0", "1", "2-vir02_1c"], ["0", "1-vir04_3c", "2-vir02_1c"]
    a, b, c = worth(idle_16), worth(idle_6), worth(idle_10)
    assert b > c > a
    downgraded = worth(["0", "1", "2-vir04", "2-vir02"], level="high")
    assert downgraded < min(worth(found, level="high") for found in (idle_16, idle_10))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"labels": {"servertype": None}}, "no node label <servertype>"),
        ({"labels": {"servertype": "Ascend310P-9"}}, "names no known number of AI cores"),
        ({"labels": {"accelerator": None}}, "getChipKindFromNpuNode label accelerator absent"),
        ({"labels": {"accelerator": "huawei-Ascend910"}}, "only Ascend310P is cut on demand"),
        ({"labels": {"node.kubernetes.io/npu.chip.name": None}}, "no node label <node.kubernetes.io/npu.chip.name>"),
        ({"capacity": 20}, "20 is no multiple of 8"),
        ({"capacity": 0}, "not have huawei.com/npu-core"),
        ({"reported": False}, "node n1 device info or clusterd info is not enable"),
        ({"base": ""}, "annotation baseDeviceInfos names no chip"),
        ({"base": "[]"}, "annotation baseDeviceInfos names no chip"),
    ],
)
def test_b22_a_node_that_does_not_say_what_it_is_takes_nobody_and_its_reason_is_told(change, cause):
    books = ledger(core_node("n1", 2, **change))
    refused = device_request(books, 4)
    assert isinstance(refused, FitError)
    assert refused.final
    assert refused.text.startswith("checkNodeNPUByDyTask invalid VNode: ")
    assert cause in refused.text
    assert any(cause in problem for problem in books.inventories["n1"].problems)


def test_b23_a_restarted_scheduler_finds_a_chip_that_the_plugin_no_longer_lists():
    books = ledger(core_node("n1", 2, info=device_info(chips(1))), npu_self_maintained=False)
    assert device_request(books, 8) == "1"
    hold(books, "a", "0-vir04_3c", real("vir04_3c"))
    assert device_request(books, 4, "high") == "0-vir04", "free (4, 4, null)"
    assert isinstance(device_request(books, 4, dvpp="yes"), str), "on the other chip"


def test_b23_a_chip_that_is_neither_listed_nor_held_is_not_free():
    books = ledger(core_node("n1", 2, info=device_info(chips(1))), npu_self_maintained=False)
    refused = device_request(books, 16)
    assert isinstance(refused, FitError)
    assert any(card.text == "it is not in the list of free chips that its node's plugin writes" for card in refused.cards)


def test_the_check_code_of_section_30():
    info = {"DeviceList": {"huawei.com/Ascend310P": "Ascend310P-0,Ascend310P-1", "huawei.com/Ascend310P-Fault": "[]",
                           "huawei.com/Ascend310P-Unhealthy": ""}, "UpdateTime": 1700000000}  # fmt: skip
    assert check_code(info) == "54fe79fa0555891d060fee5c8ae8b80f9426ba55e807f4235c2018f3cbf4dea8"


def test_the_names_of_section_40_are_read_and_written():
    assert parse_real_slice("Ascend310P", "Ascend310P-2c.1cpu-100-0_0") == RealSlice("Ascend310P", "2c.1cpu", 100, 0, 0)
    words = {name: template.word for name, template in P310.templates.items()}
    assert words == {"vir01": "1c", "vir02": "2c", "vir02_1c": "2c.1cpu", "vir04": "4c", "vir04_3c": "4c.3cpu",
                     "vir04_3c_ndvpp": "4c.3cpu.ndvpp", "vir04_4c_dvpp": "4c.4cpu.dvpp"}  # fmt: skip


def seeds_table(cores, dvpp, level):
    """Return the template by Volcano's table of templates, written out once more."""
    if cores == 1 and dvpp == "null":
        return ["vir01"]
    if cores == 2 and dvpp == "null":
        return ["vir02", "vir02_1c"] if level == "high" else ["vir02_1c"]
    if cores == 4:
        named = {"yes": ["vir04_4c_dvpp"], "no": ["vir04_3c_ndvpp"]}
        return named.get(dvpp) or (["vir04", "vir04_3c"] if level == "high" else ["vir04_3c"])
    return []


@pytest.mark.parametrize("level", ["low", "high", None, "medium"])
@pytest.mark.parametrize("dvpp", ["null", "yes", "no", None])
@pytest.mark.parametrize("cores", range(1, 13))
def test_every_request_is_cut_as_the_table_of_section_27_says(cores, dvpp, level):
    found = core_device_type().device_request(core_pod("a", cores, level=level, dvpp=dvpp))
    expected = seeds_table(cores, dvpp or "null", level or "low")
    if expected:
        assert [template.name for template in found.detail.templates] == expected
    elif cores in (8, 10):
        assert found.detail.whole
    else:
        assert isinstance(found, Refusal)


def after(state, template):
    """Return a chip's state after the template, by Volcano's rule, step by step."""
    (cores, cpus, used, free) = state
    if template.dvpp is Dvpp.YES:
        used, free = "yes", "no"
    elif template.dvpp is Dvpp.NO and used == "no":
        used, free = "no", "yes"
    elif template.dvpp is Dvpp.SHARE and used != "yes":
        used, free = "null", "null"
    return cores - template.cores, cpus - template.cpus, used, free


def meets(state, groups, template):
    cores, cpus, _, free = state
    if cores < template.cores or cpus < template.cpus or template.cores >= {3: 4, 4: 2}.get(groups, 99):
        return False
    return {"yes": free == "yes", "null": free != "no", "no": True}[template.dvpp.value]


def test_over_all_states_that_a_chip_can_be_in_every_request_gets_what_the_tables_say():
    """Every multiset of slices that can come about, with each number of vGroups it may lie in."""
    seen, waiting = set(), [((), (8, 7, "no", "yes"))]
    checked = 0
    while waiting:
        allocated, state = waiting.pop()
        if (tuple(sorted(allocated)), state) in seen:
            continue
        seen.add((tuple(sorted(allocated)), state))
        for groups in {min(len(allocated), g) for g in range(1 if allocated else 0, 5)}:
            books = ledger()
            for number, name in enumerate(allocated):
                hold(books, f"h{number}", f"0-{name}", real(name, group=number % groups, number=100 + number))
            for cores, level, dvpp in REQUESTS:
                named = seeds_table(cores, dvpp, level)
                expected = next((f"0-{name}" for name in named if meets(state, groups, P310.templates[name])), None)
                found = device_request(books, cores, level, dvpp)
                assert (found if isinstance(found, str) else None) == expected, (allocated, groups, cores, level, dvpp)
                checked += 1
        for template in P310.templates.values():
            if meets(state, min(4, len(allocated)), template):
                waiting.append(((*allocated, template.name), after(state, template)))
    assert checked > 500


# -- upstream's defects -----------------------------------------------------------------------------------------------


def test_defect_1_a_node_without_room_is_refused_in_words():
    refused = device_request(with_slices("vir04_3c", "vir04_3c"), 1)
    assert isinstance(refused, FitError)
    assert (refused.final, bool(refused.text)) == (False, True)


def test_defect_2_a_whole_chip_blocks_nobody_and_what_is_made_blocks_nobody_any_more():
    books = ledger(core_node("n1", 3))
    hold(books, "whole", "0")
    assert device_request(books, 2) == "1-vir02_1c"
    hold(books, "slice", "1-vir02_1c")
    assert device_request(books, 8) == "2", "a slice in the making does not block whole chips"
    hold(books, "slice", "1-vir02_1c", real("vir02_1c", 1, number=116))
    assert device_request(books, 4) == "1-vir04_3c"


def test_defect_3_a_downgrade_is_decided_where_the_pod_goes_and_booked_as_written():
    books = with_slices("vir04")
    assert device_request(books, 4, "high") == "0-vir04_3c"
    fit = books.place(core_pod("a", 4, level="high"), "n1")
    assert [
        (container_device.memory, container_device.cores) for container_device in fit.allocation.container_devices
    ] == [(4, 3)]
    assert device_request(ledger(), 4, "high") == "0-vir04"


def test_defect_5_small_slices_with_dvpp_and_odd_numbers_of_cores_are_refused():
    for cores, dvpp, text in (
        (1, "yes", "a req 1 ai-core, but dvpp label is:yes"), (2, "no", "a req 2 ai-core, but dvpp label is:no"),
        (3, "null", "task req npu should be [1,2,4,8,10]"), (9, "null", "task req npu should be"),
    ):  # fmt: skip
        found = core_device_type().device_request(core_pod("a", cores, dvpp=dvpp))
        assert isinstance(found, Refusal)
        assert text in found.text


def test_defect_6_chips_stand_in_one_order_cores_then_cpus_then_numbers():
    books = ledger(core_node("n1", 3))
    hold(books, "a", "1-vir02", real("vir02", 1, number=116))
    hold(books, "b", "2-vir02_1c", real("vir02_1c", 2, number=132))
    assert device_request(books, 1) == "1-vir01", "fewer CPUs are left there"
    assert device_request(ledger(core_node("n1", 3)), 1) == "0-vir01"


def test_defect_7_what_can_never_be_is_told_apart_from_what_waits_for_room():
    assert device_request(with_slices("vir04", "vir04_3c_ndvpp"), 4).final is False
    assert device_request(ledger(core_node("n1", 1)), 16).final is True


def test_defect_8_two_containers_or_an_init_container_with_cores_are_refused():
    device_type = core_device_type()
    assert "one assignment" in device_type.device_request(core_pod("a", 4, 4)).text
    assert "init container" in device_type.device_request(core_pod("a", None, init=(4,))).text
    assert device_type.device_request(core_pod("a", None, 4)).detail.cores == 4


def test_defect_11_other_chips_than_a_310p_are_refused_by_name():
    refused = device_request(ledger(core_node("n1", 2, labels={"accelerator": "huawei-Ascend910"})), 4)
    assert "only Ascend310P is cut on demand" in refusal(refused)


def test_defect_12_hosts_that_noded_calls_unhealthy_are_avoided_on_demand():
    node = core_node("n1", host="UnHealthy")
    assert device_request(ledger(node), 4) == "0-vir04_3c"
    assert "node is UnHealthy" in refusal(device_request(ledger(node, npu_avoid_unhealthy=True), 4))
    assert refusal(device_request(ledger(core_node("n1", host="PreSeparate")), 4)) == (
        "preCheckNodePredicate failure: node is PreSeparate, due to nodeD reported node status"
    )


def test_defect_14_what_was_placed_a_moment_ago_is_in_the_making():
    books = ledger(core_node("n1", 2))
    assert written(books, books.place(core_pod("a", 2), "n1")) == "0-vir02_1c"
    assert written(books, books.place(core_pod("b", 2), "n1")) == "1-vir02_1c"
    assert isinstance(books.place(core_pod("c", 2), "n1"), FitError)


# -- what others write ----------------------------------------------------------------------------------------------------


def test_a_pod_without_the_label_hears_which_one_it_needs():
    for ring, text in ((None, "it is missing"), ("ascend-910b", "it is 'ascend-910b'")):
        found = core_device_type().device_request(core_pod("a", 4, ring=ring))
        assert found.field == "label ring-controller.atlas"
        assert text in found.text
        assert "'ascend-310P'" in found.text


def test_a_configuration_for_preset_vnpus_refuses_pods_that_want_them_made():
    found = core_device_type(npu_preset=True).device_request(core_pod("a", 4))
    assert found.text == "volcano configuration presetVirtualDevice true, only support static vnpu"


def test_a_chip_that_two_lists_name_counts_as_unhealthy_and_the_others_go_on():
    for settings in ({}, {"npu_self_maintained": False}):
        books = ledger(core_node("n1", 2, info=device_info(chips(0, 1), chips(0))), **settings)
        assert device_request(books, 4) == "1-vir04_3c"
        assert any("Ascend310P-0 is listed both as free and as unhealthy" in text for text in books.inventories["n1"].problems)


def test_whole_chips_of_the_other_scheme_are_taken():
    books = ledger(core_node("n1", 2))
    pod = core_pod("static", None, annotations={"huawei.com/Ascend310P": "Ascend310P-0"}, node="n1", status=RUNNING)
    books.replay(pod, "n1")
    assert device_request(books, 8) == "1"
    assert device_request(books, 4) == "1-vir04_3c"


@pytest.mark.parametrize(
    ("text", "made", "closed"),
    [
        ("0-vir99", "", {0}), ("0-vir02_1c", "Ascend310P-2c.1cpu-100-1_0", {0, 1}), ("0-vir02_1c", "Ascend310P-4c-100-0_0", {0}),
        ("0-vir02_1c", "nonsense", {0}), ("x", "", {0, 1, 2}), ("", "", {0, 1, 2}), ("0-vir01-1", "", {0, 1, 2}),
        ("0-vir02_1c", "Ascend310P-2c.1cpu-100-0_0", set()), ("0,0", "", {0}),
    ],
)  # fmt: skip
def test_what_cannot_be_true_closes_the_chips_that_it_names_and_no_others(text, made, closed):
    books = ledger(core_node("n1", 3))
    hold(books, "a", text, made)
    assert set(books.doubts.get("n1", {})) == closed


def test_a_pod_that_runs_without_a_decision_closes_the_node():
    books = ledger(core_node("n1", 2))
    books.replay(core_pod("a", 4, node="n1", status=RUNNING), "n1")
    assert set(books.doubts["n1"]) == {0, 1}
    assert isinstance(device_request(books, 4), FitError)


def test_a_chip_that_vanishes_under_a_pod_takes_nobody_and_is_booked_again_when_it_returns():
    node = core_node("n1", 2)
    books = ledger(node)
    notes = {"huawei.com/npu-core": "1-vir04_3c", "huawei.com/AscendReal": real("vir04_3c", 1, number=116)}
    pod = core_pod("a", 4, annotations=notes, node="n1", status=RUNNING)
    shrunk = ledger(core_node("n1", 1))
    assert shrunk.replay(pod, "n1").container_devices == ()
    assert books.replay(pod, "n1").container_devices[0].uuid == "Ascend310P-1"


def test_the_policy_that_looks_ahead_leaves_a_chip_the_half_that_a_larger_slice_can_have():
    """One core on chip 0 would close it to four; chip 1 takes four with it and without."""
    chosen = {}
    for policy in ("listed", "expected"):
        books = ledger(core_node("n1", 2), npu_policy=policy)
        hold(books, "a", "0-vir04_3c", real("vir04_3c"))
        hold(books, "b", "1-vir02", real("vir02", 1, number=116))
        chosen[policy] = device_request(books, 1)
    assert chosen == {"listed": "0-vir01", "expected": "1-vir01"}


def with_chips(*chips, policy):
    """A node with these slices on its chips, a vGroup each."""
    books = ledger(core_node("n1", len(chips)), npu_policy=policy)
    for chip, slices in enumerate(chips):
        for group, template in enumerate(slices):
            made = real(template, chip, group, number=100 + 16 * chip + group)
            hold(books, f"held{chip}-{group}", f"{chip}-{template}", made)
    return books


def test_the_policy_that_looks_ahead_lets_a_small_slice_join_many_so_that_a_chip_with_few_may_become_idle():
    few, many = ["vir04", "vir01"], ["vir02", "vir01", "vir01"]
    chosen = {policy: device_request(with_chips(few, many, policy=policy), 1) for policy in ("listed", "expected")}
    assert chosen == {"listed": "0-vir01", "expected": "1-vir01"}


def test_two_cores_join_many_slices_only_while_no_chip_is_idle():
    few, many, idle = ["vir04"], ["vir02", "vir01"], []
    assert device_request(with_chips(few, many, policy="expected"), 2, "high") == "1-vir02"
    assert device_request(with_chips(few, many, idle, policy="expected"), 2, "high") == "0-vir02"


def test_the_auditor_has_a_row_for_each_chip_typed_by_another_hand() -> None:
    for name, kind in slice_kinds().items():
        chip = CHIPS[name]
        assert chip.cpus == kind.cpus
        assert chip.templates == {key: (one.cores, one.cpus) for key, one in kind.templates.items()}
        media = {dvpp: [key for key, one in kind.templates.items() if one.dvpp is dvpp] for dvpp in Dvpp}
        assert [word for word in chip.media if word] == media[Dvpp.YES] + media[Dvpp.NO]
        assert kind.groups <= 7, "a chip's state counts its vGroups in three bits"
