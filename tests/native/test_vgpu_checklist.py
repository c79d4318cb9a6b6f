"""The checklist of what HAMi-core's library does, line by line, and the tests that hold each.

A name here that no longer exists fails, and so does a line without a test. Tests are named ``file::test`` for pytest (below
``tests/native``) and ``file.c::function`` for the C programs (below ``native/vgpu/tests``).
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
C_TESTS = HERE.parents[1] / "native/vgpu/tests"
INCLUDE = HERE.parents[1] / "native/vgpu/include/vgpu"

CHECKLIST: dict[str, tuple[str, ...]] = {
    # Layout
    "a live region decodes with the formats that monitors use": (
        "test_vgpu_region.py::test_a_monitor_finds_every_field_where_it_looks",
        "test_region.c::a_new_region_is_what_a_monitor_expects",
    ),
    "UUID fields are zero behind the text": ("test_vgpu_region.py::test_a_monitor_finds_every_field_where_it_looks",),
    "unused slots are zero after an exit": (
        "test_vgpu_memory.py::test_a_process_that_ends_leaves_an_empty_slot",
        "test_vgpu_robustness.py::test_sixty_four_processes_start_at_once",
        "test_vgpu_memory.py::test_a_process_that_ends_slowly_counts_until_the_card_has_all_back",
        "test_slots.c::who_ends_is_gone_for_monitors_at_once_and_for_the_limit_when_the_driver_has_all_back",
    ),
    "unused slots are zero after SIGKILL and a sweep": (
        "test_vgpu_region.py::test_slots_of_the_dead_are_all_zero_after_the_next_look",
        "test_slots.c::the_dead_give_back_at_the_next_request",
        "test_slots.c::what_a_leaving_process_still_wrote_is_swept",
    ),
    "unused slots are zero after a fork": (
        "test_vgpu_robustness.py::test_a_forked_child_does_not_touch_the_parents_slot",
        "test_vgpu_conformance.py::test_a_storm_of_forks_leaves_the_parent_and_the_region_alone",
    ),
    # Environment
    "the grammar of limits, by table": (
        "test_limits.c::each_spelling_of_bytes",
        "test_limits.c::each_spelling_of_percent",
        "test_vgpu_robustness.py::test_bad_limits_fail_closed_for_memory_and_open_for_cores",
        "test_vgpu_robustness.py::test_a_memory_limit_that_says_nothing_is_none",
        "test_vgpu_robustness.py::test_a_memory_limit_that_nobody_can_read_gives_nothing_and_says_so",
    ),
    "the precedence of limits, by table": (
        "test_limits.c::the_own_variable_comes_before_the_general_one",
        "test_limits.c::nothing_said_is_unlimited",
        "test_limits.c::zero_inherits",
        "test_limits.c::a_bad_memory_value_falls_to_the_next_source",
        "test_limits.c::a_bad_core_value_fails_open",
        "test_limits.c::a_device_nobody_spoke_of_gets_the_smallest_limit_given",
    ),
    "the region wins over later environments": (
        "test_vgpu_robustness.py::test_a_later_environment_does_not_change_the_limit",
        "test_region.c::the_first_limits_hold",
    ),
    "a process without its variables is rescued": (
        "test_vgpu_robustness.py::test_a_process_without_environment_is_limited_by_the_region_beside_the_library",
        "test_vgpu_robustness.py::test_two_regions_beside_the_library_are_no_answer",
    ),
    # Interposition
    "a direct call of each hooked name is ours": (
        "test_vgpu_conformance.py::test_a_direct_call_of_every_hooked_name_is_ours",
        "test_vgpu_symbols.py::test_a_program_linked_against_the_driver_meets_us",
    ),
    "dlsym by handle, RTLD_DEFAULT and RTLD_NEXT of each hooked name is ours": (
        "test_vgpu_symbols.py::test_every_hooked_name_is_ours_where_the_driver_has_it",
    ),
    "cuGetProcAddress, old and new, each version and stream flag, is ours with the right ABI": (
        "test_vgpu_symbols.py::test_get_proc_address_answers_with_the_version_and_stream_flavour_asked_for",
        "test_vgpu_symbols.py::"
        "test_a_driver_that_hands_out_other_addresses_than_it_exports_is_translated_by_version_and_flag",
    ),
    "unhooked names are the driver's": (
        "test_vgpu_symbols.py::test_every_hooked_name_is_ours_where_the_driver_has_it",
        "test_vgpu_symbols.py::test_without_a_driver_its_names_are_not_there",
    ),
    "RTLD_NEXT of another preloaded library finds the next definition": (
        "test_vgpu_symbols.py::test_another_preloaded_library_still_finds_the_next_definition",
    ),
    "a million look-ups leak nothing": ("test_vgpu_symbols.py::test_a_million_look_ups_leak_nothing",),
    # Memory
    "for every allocating entry the exact fit succeeds and one more fails with code 2": (
        "test_vgpu_memory.py::test_an_entry_gives_exactly_the_limit_and_not_a_unit_more",
        "test_vgpu_memory.py::test_a_graph_that_allocates_is_refused_above_the_limit",
        "test_vgpu_memory.py::test_one_byte_above_is_refused_and_the_whole_limit_is_usable",
    ),
    "processes times threads never exceed the limit, by an independent witness": (
        "test_vgpu_conformance.py::test_many_processes_of_many_threads_never_hold_more_than_the_limit",
        "test_memory.c::many_hands_never_exceed_the_limit",
        "test_vgpu_memory.py::test_the_machine_saw_what_the_books_say",
    ),
    "and never fail when the request fits": (
        "test_memory.c::of_two_that_do_not_both_fit_exactly_one_is_granted",
        "test_vgpu_conformance.py::test_what_is_told_of_memory_never_contradicts_itself",
        "test_vgpu_memory.py::test_small_blocks_fill_the_limit_to_the_last",
    ),
    "accounting returns to the baseline after all frees": (
        "test_vgpu_conformance.py::test_everything_given_back_leaves_what_was_there",
        "test_vgpu_entries.py::test_the_books_are_right_after_every_entry",
    ),
    "a crash of one process returns its memory to the others": (
        "test_vgpu_memory.py::test_a_killed_process_gives_back_at_the_next_request_even_as_a_zombie",
        "test_vgpu_conformance.py::test_whatever_call_fails_the_books_are_the_machines",
    ),
    # Queries
    "CUDA and NVML tell one consistent story in every state, more in use than the limit included": (
        "test_vgpu_conformance.py::test_what_is_told_of_memory_never_contradicts_itself",
        "test_vgpu_memory.py::test_cuda_and_nvml_tell_one_story",
        "test_vgpu_memory.py::test_a_live_change_of_the_limit_holds_at_once",
        "test_vgpu_memory.py::test_nvidia_smi_shows_the_limit_and_takes_nothing",
    ),
    # Limiter
    "the targets for one tenant": ("test_vgpu_limiter.py::test_one_tenant_gets_its_limit_and_loses_nothing",),
    "the targets for several processes and several tenants": (
        "test_vgpu_limiter.py::test_processes_of_a_container_share_one_budget_fairly",
        "test_vgpu_limiter.py::test_tenants_with_short_kernels_each_get_their_limit",
        "test_vgpu_limiter.py::test_tenants_with_long_kernels_take_turns_with_the_arbiter",
    ),
    "a change of the limit settles within 200 ms": (
        "test_vgpu_limiter.py::test_a_live_change_of_the_limit_settles_within_200_ms",
    ),
    "switch, policy and priority take effect within the stated times": (
        "test_vgpu_limiter.py::test_the_switch_of_the_monitor_turns_the_default_policy_off_and_on",
        "test_vgpu_limiter.py::test_the_policy_force_does_not_ask_the_switch",
        "test_vgpu_limiter.py::test_the_policy_disable_limits_nothing",
        "test_vgpu_limiter.py::test_a_blocked_container_launches_nothing_until_it_is_released",
        "test_vgpu_limiter.py::test_a_launch_tells_the_monitor_that_the_container_is_active",
        "test_gate.c::a_closed_gate_is_looked_at_every_5_ms",
        "test_gate.c::the_gate_follows_limit_policy_and_switch",
        "test_gate.c::activity_is_told_without_undoing_a_block",
    ),
    "capture is not disturbed": ("test_vgpu_conformance.py::test_measuring_disturbs_no_capture_of_another_thread",),
    "graphs, and every other way to launch, are limited": (
        "test_vgpu_limiter.py::test_every_shape_of_launch_is_limited",
        "test_vgpu_entries.py::test_every_way_to_launch_is_limited",
    ),
    # Robustness
    "SIGKILL at random points blocks nobody beyond the bounded waits": (
        "test_vgpu_robustness.py::test_kills_at_any_moment_lose_no_byte_and_leave_no_lock",
        "test_vgpu_robustness.py::test_a_killed_launcher_does_not_hold_up_the_others",
        "test_vgpu_soak.py::test_ten_thousand_kills_lose_no_byte_and_leave_no_lock",
        "test_region_locks.c::the_turn_of_the_dead_is_over_at_once",
        "test_region_locks.c::the_turn_of_the_living_is_waited_for_until_the_bound_and_the_wait_is_counted",
        "test_region_locks.c::a_crowd_decides_in_time",
    ),
    "fork storms": ("test_vgpu_conformance.py::test_a_storm_of_forks_leaves_the_parent_and_the_region_alone",),
    "1,024 slots": (
        "test_slots.c::the_thousand_and_twenty_fifth_process_is_limited_alone",
        "test_slots.c::slots_are_reused_lowest_first_and_never_move",
    ),
    "a read-only or full file system": (
        "test_vgpu_robustness.py::test_a_full_disk_costs_one_line_and_limits_hold",
        "test_vgpu_robustness.py::test_a_read_only_disk_costs_one_line_and_limits_hold",
    ),
    "missing NVML": ("test_vgpu_region.py::test_the_limit_holds_without_nvml",),
    "missing symbols": (
        "test_vgpu_region.py::test_the_limit_holds_on_older_drivers",
        "test_vgpu_conformance.py::test_a_direct_call_of_what_the_driver_lacks_is_not_found",
    ),
    "the driver returning errors at each call": (
        "test_vgpu_conformance.py::test_whatever_call_fails_the_books_are_the_machines",
        "test_vgpu_robustness.py::test_the_driver_failing_at_any_call_harms_nobody",
        "test_vgpu_memory.py::test_the_driver_refusing_gives_the_booking_back",
        "test_vgpu_memory.py::test_a_free_that_the_driver_refuses_stays_booked",
    ),
    # Process hygiene
    "/bin/true under preload adds at most 0.3 ms": (
        "test_vgpu_conformance.py::test_a_program_without_a_gpu_starts_almost_as_quickly_under_the_preload",
    ),
    "the exported symbols are the allow-list": (
        "test_vgpu_symbols.py::test_it_exports_what_it_hooks_and_nothing_else",
    ),
    "no constructors": ("test_vgpu_symbols.py::test_nothing_of_ours_runs_when_it_is_loaded",),
    "no DT_NEEDED beyond the C library, and an old one will do": (
        "test_vgpu_symbols.py::test_it_needs_only_the_c_library_and_an_old_one_will_do",
    ),
}


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Names of the tests that a file runs; in C only those that its main calls count."""
    text = path.read_text()
    if path.suffix == ".c":
        _, _, body = text.partition("int main(")
        return frozenset(re.findall(r"^ +(\w+)\(\);", body, re.M))
    tree = ast.parse(text)
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")
    )


@pytest.mark.parametrize("line", CHECKLIST)
def test_every_line_of_the_checklist_has_tests_that_exist(line: str) -> None:
    tests = CHECKLIST[line]
    assert tests, f"nothing tests: {line}"
    for test in tests:
        file, _, name = test.partition("::")
        path = (C_TESTS if file.endswith(".c") else HERE) / file
        assert path.exists(), test
        assert name in functions_of(path), test


# Where other programs read each field: version 1.2 (and 1.1), then version 0 (HAMi-core
# src/multiprocess/multiprocess_memory_limit.h).
OFFSETS: dict[str, dict[str, int]] = {
    "region": {
        "initialized_flag": 0,
        "major_version": 4,
        "minor_version": 8,
        "sm_init_flag": 12,
        "owner_pid": 16,
        "sem": 24,
        "device_num": 56,
        "uuids": 64,
        "limit": 1600,
        "sm_limit": 1728,
        "procs": 1856,
        "proc_num": 2008896,
        "utilization_switch": 2008900,
        "recent_kernel": 2008904,
        "priority": 2008908,
        "last_kernel_time": 2008912,
        "sem_postinit": 2008920,
    },
    "region_slot": {
        "pid": 0,
        "hostpid": 4,
        "used": 8,
        "monitorused": 1032,
        "device_util": 1160,
        "status": 1928,
        "seqlock": 1936,
        "unused": 1944,
    },
    "device_memory": {"context_size": 0, "module_size": 8, "data_size": 16, "offset": 24, "total": 32, "unused": 40},
    "device_util": {"dec_util": 0, "enc_util": 8, "sm_util": 16, "unused": 24},
    "v0_region": {
        "owner_pid": 8,
        "sem": 16,
        "device_num": 48,
        "uuids": 56,
        "limit": 1592,
        "sm_limit": 1720,
        "procs": 1848,
        "proc_num": 1197880,
        "utilization_switch": 1197884,
        "recent_kernel": 1197888,
        "priority": 1197892,
    },
    "v0_slot": {"used": 8, "monitorused": 648, "device_util": 776, "status": 1160},
}
SIZES = {
    "region": "REGION_V1_BYTES",
    "region_slot": "1960",
    "device_memory": "64",
    "device_util": "48",
    "v0_region": "REGION_V0_BYTES",
    "v0_slot": "1168",
    "region_ext": "REGION_EXT_BYTES",
}
NUMBERS = {
    "REGION_V1_BYTES": 2008952,
    "REGION_V0_BYTES": 1197896,
    "REGION_EXT_OFFSET": 2011136,
    "REGION_EXT_BYTES": 331776,
}


def test_the_layout_of_each_version_is_asserted_when_the_library_is_built() -> None:
    header = (INCLUDE / "region.h").read_text() + (INCLUDE / "region_legacy.h").read_text()
    asserted = {(kind, field): int(at) for kind, field, at in re.findall(r"^AT\((\w+), (\w+), (\d+)\);", header, re.M)}
    sizes = dict(re.findall(r"^SIZE\((\w+), (\w+)\);", header, re.M))
    numbers = {name: int(value) for name, value in re.findall(r"^#define (\w+_(?:BYTES|OFFSET)) (\d+)ul", header, re.M)}
    for kind, fields in OFFSETS.items():
        assert {field: asserted.get((kind, field)) for field in fields} == fields, kind
    assert SIZES.items() <= sizes.items()
    assert NUMBERS.items() <= numbers.items()
    sources = "".join(path.read_text() for path in (INCLUDE.parents[1] / "src").rglob("*.[ch]"))
    assert '"vgpu/region.h"' in sources
    assert '"vgpu/region_legacy.h"' in sources  # so the assertions are compiled
