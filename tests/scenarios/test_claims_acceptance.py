"""The acceptance cases of claims by number, and their bad input by name: each with the place where it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNIT, WRITES = "tests/unit/claims/test_acceptance.py", "tests/scenarios/test_writing_claims.py"
DEVICES = "tests/scenarios/test_claims_of_devices.py"
NODE, RESOURCES = "tests/scenarios/test_claims_on_a_node.py", "tests/scenarios/test_resources_had_by_claim.py"
CRASHES = "tests/unit/devices/nvidia_vgpu/plugin/test_claim_crashes.py"
CUT = "tests/unit/devices/nvidia_vgpu/plugin/test_claims_in_mig_mode.py"
PARTS = "tests/unit/devices/nvidia_vgpu/node/test_claim_partitions.py"
LOOKS = "tests/unit/devices/nvidia_vgpu/plugin/test_claims_that_look.py"
ATTACKS = "tests/unit/devices/nvidia_vgpu/plugin/test_claim_attacks.py"
CASES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("claims share a card as long as it has room", (
        f"{UNIT}::test_1_claims_share_a_card_as_long_as_it_has_room",
        f"{DEVICES}::test_three_claims_share_a_card_and_a_fourth_is_told_the_numbers")),
    2: ("what is asked is rounded up by the step, and the container is held to the same MiB", (
        f"{UNIT}::test_2_what_is_asked_is_rounded_up_by_the_step",
        "tests/unit/devices/nvidia_vgpu/node/test_claims.py::test_a_claim_gets_what_it_consumes_and_memory_in_whole_mib")),
    3: ("who asks for nothing takes the default", (f"{UNIT}::test_3_who_asks_nothing_takes_the_defaults",)),
    4: ("a capacity without a policy is taken whole, and our driver publishes none without", (
        f"{UNIT}::test_4_a_capacity_without_a_policy_is_taken_whole",
        "tests/unit/devices/nvidia_vgpu/node/test_claims.py::"
        "test_each_capacity_of_a_card_that_is_shared_has_a_policy")),
    5: ("a capacity is asked by the published key", (f"{UNIT}::test_5_a_capacity_is_asked_by_the_key_that_is_published",)),
    6: ("two devices are two cards", (f"{UNIT}::test_6_two_devices_are_two_cards_and_two_requests_may_be_one",)),
    7: ("matchAttribute binds requests to one card", (f"{UNIT}::test_7_requests_bound_to_one_card_have_room_on_it_together",)),
    8: ("a partition beside a shared device in use", (f"{UNIT}::test_8_a_shared_device_in_use_has_paid_its_counters",)),
    9: ("partitions and the whole card", (
        f"{UNIT}::test_9_partitions_and_the_whole_card_exclude_one_another",
        f"{PARTS}::test_9_what_is_allocated_of_a_card_in_mig_mode_is_what_its_driver_can_cut")),
    10: ("two drivers with one pool name", (f"{UNIT}::test_10_counters_of_two_drivers_with_one_pool_name_are_apart",)),
    11: ("a tainted card before a healthy one", (f"{UNIT}::test_11_a_device_that_was_turned_down_holds_nothing",)),
    12: ("an allocated device vanishes", (
        f"{UNIT}::test_12_a_device_that_vanishes_keeps_what_it_consumed",
        f"{DEVICES}::test_a_card_that_is_published_no_more_stays_taken",
        f"{PARTS}::test_12_slices_of_a_card_that_is_sick_stay_published_and_take_no_more")),
    13: ("adminAccess consumes nothing, and the API server wants a label", (
        f"{UNIT}::test_13_admin_access_consumes_nothing_and_is_seen_by_nobody",
        f"{LOOKS}::test_13_who_looks_gets_the_cards_of_others_without_a_share_and_takes_nothing_of_them",
        "lab/tests/contract/test_api_claims.py::test_admin_access_is_for_namespaces_that_are_labelled_for_it")),
    14: ("All while one card is full", (f"{UNIT}::test_14_all_means_full_cards_too",)),
    15: ("half a pool", (f"{UNIT}::test_15_of_half_a_pool_nothing_is_given", f"{DEVICES}::test_an_incomplete_pool_is_named")),
    16: ("CEL on an attribute that a device lacks", (
        f"{UNIT}::test_16_a_selector_that_throws_is_named_with_its_claim_and_device",
        f"{DEVICES}::test_a_selector_that_throws_is_told_and_keeps_nobody_else_away")),
    17: ("alternatives in their order, nodes with an earlier one first", (
        f"{UNIT}::test_17_the_first_alternative_that_fits_is_taken",
        "tests/scenarios/test_claims_packed_or_spread.py::test_a_node_that_offers_the_first_alternative_is_preferred")),
    18: ("selectors or slices appear later", (f"{DEVICES}::test_a_pod_wakes_when_what_it_lacks_comes",)),
    19: ("two pods of one claim, and the 257th", (
        f"{DEVICES}::test_two_pods_of_one_claim_run_on_one_node", f"{DEVICES}::test_the_257th_consumer_waits_and_is_told_so")),
    20: ("a write that conflicts, an API server that is down, a kill in between", (
        f"{WRITES}::test_a_fault_at_any_write_is_got_over", f"{WRITES}::test_a_successor_gets_over_a_kill_at_any_write",
        "tests/scenarios/test_writing_claims_by_resource.py::test_a_successor_goes_on_with_one_claim_after_a_kill_at_any_write")),
    21: ("a gang whose third claim is impossible", (f"{DEVICES}::test_a_gang_takes_all_its_claims_or_none",)),
    22: ("a pod deleted before it starts, and the last consumer", (
        "lab/tests/unit/controllers/test_resource_claims.py::"
        "test_a_consumer_that_is_gone_is_released_and_the_last_takes_the_allocation_with_it",
        f"{NODE}::test_a_pods_claim_is_its_share_and_goes_with_the_pod")),
    23: ("kubelet, driver and node restart", (
        f"{NODE}::test_a_driver_that_restarts_goes_on_and_one_with_half_a_book_asks_the_api_server",
        f"{CRASHES}::test_unprepare_of_a_claim_that_nobody_knows_succeeds_and_a_path_is_no_uid",
        f"{CUT}::test_a_claims_slice_is_cut_once_and_a_driver_that_starts_again_gives_the_same",
        f"{ATTACKS}::test_after_a_reboot_nothing_is_held_and_a_pod_that_comes_back_begins_with_new_files",
        "tests/e2e/test_claims_on_the_real_kubelet.py::"
        "test_a_killed_driver_and_a_restarted_kubelet_keep_the_share_and_slices_come_back")),
    24: ("two containers, two requests on one card", (
        f"{NODE}::test_two_containers_of_two_requests_on_one_card_are_each_held_to_their_own",)),
    25: ("an extended resource on a driver's node and on a device plugin's", (
        f"{RESOURCES}::test_a_pod_gets_a_claim_and_its_node_and_the_third_of_two_cards_waits",
        f"{RESOURCES}::test_a_node_that_offers_the_resource_itself_needs_no_claim_and_holds_no_more_than_it_offers",
        "tests/unit/devices/convert/test_claims.py",
        "tests/contract/test_webhook.py::test_shares_are_claims_where_the_namespace_says_so_and_a_dry_run_writes_nothing",
        "tests/unit/jobs/apps/controller/test_share_claims.py::"
        "test_pods_of_one_workload_have_one_template_that_is_their_workloads_whatever_fails",
        "tests/scenarios/test_claims_on_a_cluster.py::"
        "test_pods_in_volcanos_and_hamis_words_run_by_claim_and_their_templates_are_their_workloads")),
}  # fmt: skip

DAMAGED, SEARCHING = "tests/scenarios/test_claims_that_are_damaged.py", "tests/unit/claims/test_searching.py"
GENERATIONS = "tests/scenarios/test_claims_of_generations.py"
SHARE = "tests/unit/devices/nvidia_vgpu/node/test_claims.py"
BAD_INPUT: dict[str, tuple[str, ...]] = {
    "a slice of 129 devices": ("tests/unit/claims/test_reading.py::test_a_slice_that_nobody_could_have_stored",),
    "a counter that is missing": (f"{SEARCHING}::test_pools_are_valid_or_give_nothing",),
    "two pools of one name": (f"{UNIT}::test_10_counters_of_two_drivers_with_one_pool_name_are_apart",),
    "a generation that goes back": (
        f"{GENERATIONS}::test_a_pool_that_goes_back_gives_nothing_until_its_last_slice_has_gone_back_too",
        f"{GENERATIONS}::test_a_share_is_still_held_of_a_pool_that_begins_at_generation_1_again",
        f"{GENERATIONS}::test_an_old_slice_that_comes_back_beside_newer_ones_gives_none_of_its_cards",
        f"{ATTACKS}::test_a_pool_that_somebody_sets_back_is_written_anew_unless_it_is_whole"),
    "CEL that throws": (f"{DEVICES}::test_a_selector_that_throws_is_told_and_keeps_nobody_else_away",),
    "CEL that costs too much": (
        f"{DAMAGED}::test_a_selector_that_costs_too_much_or_means_nothing_is_told_and_keeps_nobody_else_away",),
    "a capacity of 250m": (
        f"{SEARCHING}::test_c_07_fractions_are_exact",
        f"{SHARE}::test_a_status_that_would_mean_no_limit_or_a_negative_one_is_refused"),
    "a claim deleted between decision and write": (
        f"{WRITES}::"
        "test_a_claim_deleted_between_the_decision_and_a_write_leaves_its_device_to_the_next_and_its_pod_waits",
        f"{WRITES}::test_a_claim_that_went_before_the_answer_to_a_write_on_it_holds_nothing"),
    "template claims that never come": (f"{DEVICES}::test_a_template_claim_that_is_not_made_yet_is_waited_for",),
    "the 257th consumer": (f"{DEVICES}::test_the_257th_consumer_waits_and_is_told_so",),
    "opaque parameters of another version": (f"{SHARE}::test_other_parameters_are_refused_by_name",),
    "a tenant who writes a claim's status": (
        f"{DAMAGED}::test_less_than_nothing_in_a_status_frees_nothing",
        f"{DAMAGED}::test_a_share_of_an_amount_that_cannot_be_read_is_the_whole_card",
        f"{SHARE}::test_an_allocation_that_cannot_be_meant_is_refused"),
    "a checkpoint cut in half": (
        f"{ATTACKS}::test_a_book_that_is_cut_in_half_or_lost_is_made_anew_also_of_claims_that_the_api_server_has_no_more",),
}  # fmt: skip


def test_all_twenty_five_cases_are_told() -> None:
    assert sorted(CASES) == list(range(1, 26))


@pytest.mark.parametrize(("title", "places"), [
    *((f"{number}: {title}", places) for number, (title, places) in CASES.items()), *BAD_INPUT.items(),
])  # fmt: skip
def test_a_case_is_told_where_its_line_says(title: str, places: tuple[str, ...]) -> None:
    assert places
    for place in places:
        file, _, name = place.partition("::")
        text = (ROOT / file).read_text()
        assert not name or f"\ndef {name}(" in text, f"{title}: {place} is not there"
