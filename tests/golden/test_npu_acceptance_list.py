"""The worked examples of NPUs and upstream's defects (docs/reference/ascend.md, docs/reference/ascend-mindcluster.md), number
by number: the tests that show them."""

from __future__ import annotations

import pytest
from tests.golden.test_node_acceptance_list import TESTS, functions_of

HAMI, CORES = "golden/test_ascend_hami.py", "golden/test_ascend_mindcluster.py"
SHARING, ON_DEMAND = "scenarios/test_sharing_npus.py", "scenarios/test_npus_cut_on_demand.py"
BOOKS = "unit/devices/ascend_hami/test_books.py"
PLUGIN, CALLS = "scenarios/test_the_npu_plugin.py", "unit/devices/ascend_hami/node/test_npu_allocator.py"
LOCKS = "unit/apps/scheduler/test_node_locks.py"

EXAMPLES = {
    # 22: HAMi's mode
    "A1": (f"{HAMI}::test_a1_a_slice_is_trimmed_and_written", f"{HAMI}::test_a1_all_keys_of_a_decision_are_written",
           f"{SHARING}::test_a_310p_pod_of_4096_mb_gets_a_slice_of_6144"),
    "A2": (f"{HAMI}::test_a2_without_memory_a_pod_has_the_whole_card_and_nobody_joins_it",),
    "A3": (f"{HAMI}::test_a3_what_fits_beside_what",),
    "A4": (f"{HAMI}::test_a4_count_and_memory_of_a_card_end_together",),
    "A5": (f"{HAMI}::test_a5_the_policy_chooses_the_card_whatever_the_weight",),
    "A6": (f"{HAMI}::test_a6_several_cards_are_whole_cards",),
    "A7": (f"{HAMI}::test_a7_cards_of_one_ring_are_taken_together",
           f"{HAMI}::test_a7_a_small_job_leaves_the_whole_ring_whole"),
    "A8": (f"{HAMI}::test_a8_a_card_serves_one_container_of_a_pod_and_all_containers_are_booked",),
    "A9": (f"{HAMI}::test_a9_more_than_a_card_has_is_refused",),
    "A10": (f"{HAMI}::test_a10_bytes_where_mb_are_meant_are_refused_with_the_right_number",),
    "A11": (f"{HAMI}::test_a11_soft_shares_count_cores_in_per_cent",),
    "A12": (f"{HAMI}::test_a12_binpack_scores_the_card_that_is_used_already",),
    "A13": (f"{CALLS}::test_bind_phase_is_success_only_when_the_last_container_is_served",
            f"{CALLS}::test_a_slot_that_does_not_fit_its_container_is_refused"),
    "A14": (f"{HAMI}::test_a14_the_lock_names_its_owner_and_expires_after_five_minutes",
            f"{LOCKS}::test_the_lock_of_npus_names_the_pod_that_holds_it"),
    "A15": (f"{HAMI}::test_a15_a_node_of_which_the_plugin_is_gone_offers_nothing_and_says_so",
            f"{SHARING}::test_a_node_without_the_type_is_no_place_for_a_pod_that_asks_for_it"),
    "A16": (f"{HAMI}::test_a16_three_slices_fill_a_910b3_by_memory",),
    # 44: MindCluster's
    **{f"B{number}": (f"{CORES}::test_what_a_chip_with_slices_takes_yet",) for number in range(1, 13)},
    "B13": (f"{CORES}::test_b13_a_slice_goes_to_the_fullest_chip_that_takes_it_and_whole_chips_are_empty_ones",),
    "B14": (f"{CORES}::test_b14_nothing_is_put_on_a_chip_while_its_slice_is_in_the_making",),
    "B15": (f"{CORES}::test_b15_only_the_same_template_joins_a_node_with_one_in_the_making",),
    "B16": (f"{CORES}::test_b16_two_whole_chips",),
    "B17": (f"{CORES}::test_b17_a_whole_chip_takes_all_of_its_cpus",),
    "B18": (f"{CORES}::test_b18_an_unhealthy_chip_is_no_whole_chip_though_the_node_offers_its_cores",),
    "B19": (f"{CORES}::test_b19_a_node_with_fewer_idle_cores_than_asked_for",),
    "B20": (f"{CORES}::test_b20_a_label_that_means_nothing_is_refused_for_slices_and_not_read_for_whole_chips",),
    "B21": (f"{CORES}::test_b21_the_fullest_node_without_a_downgrade_comes_first",),
    "B22": (f"{CORES}::test_b22_a_node_that_does_not_say_what_it_is_takes_nobody_and_its_reason_is_told",),
    "B23": (f"{CORES}::test_b23_a_restarted_scheduler_finds_a_chip_that_the_plugin_no_longer_lists",
            f"{CORES}::test_b23_a_chip_that_is_neither_listed_nor_held_is_not_free"),
    "B24": ("unit/devices/ascend_mindcluster/node/test_whose_cores.py"
            "::test_of_two_pods_with_as_many_cores_the_one_that_was_placed_first_is_served_and_marked",
            "unit/devices/ascend_mindcluster/node/test_whose_cores.py::test_a_number_of_cores_that_nobody_waits_for_gets_no_pod"),
}  # fmt: skip

DEFECTS = {
    # 23: of HAMi's mode
    "A.1": (f"{BOOKS}::test_every_container_is_booked_also_in_the_form_that_upstream_cannot_read_itself",
            f"{HAMI}::test_a8_a_card_serves_one_container_of_a_pod_and_all_containers_are_booked"),
    "A.2": (f"{HAMI}::test_defect_2_there_is_a_slot_for_every_container_init_containers_first",),
    "A.3": (f"{HAMI}::test_a9_more_than_a_card_has_is_refused",),
    "A.4": (f"{HAMI}::test_defect_4_no_quantity_wraps_around",),
    "A.5": (f"{HAMI}::test_a5_the_policy_chooses_the_card_whatever_the_weight",),
    "A.6": (f"{HAMI}::test_defect_6_equals_are_told_apart_by_their_place_in_the_register",),
    "A.7": (f"{HAMI}::test_defect_7_a_card_that_is_not_healthy_is_passed_over_and_keeps_its_bookings",
            "property/test_npu_grants_are_served.py::test_every_slice_that_was_booked_is_made",
            "property/test_npu_grants_are_served.py::test_what_the_driver_would_refuse_is_not_booked"),
    "A.8": (f"{HAMI}::test_defect_8_one_card_is_chosen_by_the_policy_whatever_ring_it_is_in",
            f"{HAMI}::test_a7_a_small_job_leaves_the_whole_ring_whole"),
    "A.9": (f"{HAMI}::test_defect_9_a_ring_scores_by_all_cards_of_a_container",),
    "A.10": (f"{SHARING}::test_a_pod_with_two_types_of_npu_is_bound_under_one_lock_and_one_that_fits_nowhere_takes_none",
             f"{LOCKS}::test_a_failed_binding_gives_the_lock_back_unless_it_is_somebody_elses_by_now",
             f"{LOCKS}::test_the_lock_of_npus_names_the_pod_that_holds_it"),
    "A.11": (f"{SHARING}::test_a_node_without_the_type_is_no_place_for_a_pod_that_asks_for_it",),
    "A.12": (f"{HAMI}::test_defect_12_memory_without_a_card_is_refused_with_what_to_add",),
    "A.13": (f"{SHARING}::test_a_pod_that_ends_gives_its_slice_back_and_one_that_ends_slowly_keeps_it",),
    "A.14": (f"{SHARING}::test_what_is_bound_is_held_before_the_watch_tells_of_it",),
    "A.15": (f"{HAMI}::test_defect_15_a_type_that_a_node_no_longer_registers_is_gone",),
    "A.16": (f"{PLUGIN}::test_two_pods_without_a_lock_get_their_own_cards_and_neither_fails_for_the_other",
             f"{CALLS}::test_a_pod_that_was_served_does_not_answer_for_another"),
    "A.17": (f"{PLUGIN}::test_a_sick_card_recovers_in_the_list_and_on_the_node",),
    "A.18": (f"{PLUGIN}::test_a_slice_that_a_runtime_left_is_swept_up_and_one_made_by_hand_is_not",
             "property/test_npu_slices.py::test_no_slice_is_lost_and_none_of_somebody_elses_is_touched"),
    "A.19": ("unit/deploy/test_manifests.py"
             "::test_npus_are_served_on_labelled_nodes_and_what_single_nodes_do_otherwise_is_read",),
    "A.20": (f"{HAMI}::test_defect_20_no_template_is_cut_where_cards_are_shared_softly",),
    "A.21": (f"{CALLS}::test_bind_phase_is_success_only_when_the_last_container_is_served",),
    "A.22": (f"{PLUGIN}::test_a_configuration_that_changes_under_running_pods_is_learned_and_takes_nothing_from_them",
             "scenarios/test_nonsense_in_a_cluster.py::test_a_device_configmap_that_becomes_broken_leaves_the_cards_as_they_were"),
    # 45: of MindCluster's
    "B.1": (f"{CORES}::test_defect_1_a_node_without_room_is_refused_in_words",),
    "B.2": (f"{CORES}::test_defect_2_a_whole_chip_blocks_nobody_and_what_is_made_blocks_nobody_any_more",),
    "B.3": (f"{CORES}::test_defect_3_a_downgrade_is_decided_where_the_pod_goes_and_booked_as_written",),
    "B.4": (f"{ON_DEMAND}::test_init_params_hold_in_every_cycle_and_nothing_is_counted_twice_from_one_to_the_next",),
    "B.5": (f"{CORES}::test_defect_5_small_slices_with_dvpp_and_odd_numbers_of_cores_are_refused",),
    "B.6": (f"{CORES}::test_defect_6_chips_stand_in_one_order_cores_then_cpus_then_numbers",),
    "B.7": (f"{CORES}::test_defect_7_what_can_never_be_is_told_apart_from_what_waits_for_room",),
    "B.8": (f"{CORES}::test_defect_8_two_containers_or_an_init_container_with_cores_are_refused",),
    "B.9": (f"{ON_DEMAND}::test_a_pod_that_goes_slowly_keeps_its_slice_and_what_it_has_in_the_making",),
    "B.10": (f"{ON_DEMAND}::test_a_pod_that_its_node_refused_is_deleted_on_demand_where_a_controller_makes_another",),
    "B.11": (f"{CORES}::test_defect_11_other_chips_than_a_310p_are_refused_by_name",),
    "B.12": (f"{CORES}::test_defect_12_hosts_that_noded_calls_unhealthy_are_avoided_on_demand",),
    "B.13": (f"{ON_DEMAND}::test_init_params_hold_in_every_cycle_and_nothing_is_counted_twice_from_one_to_the_next",),
    "B.14": (f"{CORES}::test_defect_14_what_was_placed_a_moment_ago_is_in_the_making",),
}  # fmt: skip
SHOWN = EXAMPLES | DEFECTS


@pytest.mark.parametrize("number", SHOWN)
def test_what_shows_a_number_of_the_specification_is_there(number: str) -> None:
    for named in SHOWN[number]:
        file, _, test = named.partition("::")
        assert test in functions_of(TESTS / file), named


def test_every_example_and_every_defect_of_the_specification_has_its_tests() -> None:
    assert [*EXAMPLES] == [f"A{number}" for number in range(1, 17)] + [f"B{number}" for number in range(1, 25)]
    known = {f"A.{number}" for number in range(1, 23)} | {f"B.{number}" for number in range(1, 15)}
    assert DEFECTS.keys() == known
