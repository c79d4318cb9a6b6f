"""The node's worked examples and upstream's defects (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu), number by number: the
tests that show
them. Other lists: deviceshare's examples and defects beside this file, the versions that meet in ``test_mixed_versions.py``."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ALLOCATOR, INVENTORY = "unit/devices/nvidia_vgpu/node/test_allocator.py", "unit/devices/nvidia_vgpu/node/test_inventory.py"
PLUGIN, SLICING = "unit/devices/nvidia_vgpu/plugin/test_vgpu_plugin.py", "scenarios/test_the_plugin_that_cuts_cards.py"
COMMANDS, READER = "unit/cli/test_node_commands.py", "unit/adapters/region/test_reader.py"

SHOWN = {
    # 21: worked examples
    "21.1": (f"{INVENTORY}::test_the_register_annotation_says_what_is_shared",
             f"{INVENTORY}::test_device_ids_count_shares_units_and_percents",
             f"{INVENTORY}::test_the_size_of_a_list_is_computed_to_the_byte"),
    "21.2": (f"{ALLOCATOR}::test_one_container_with_one_card_gets_its_limits_and_the_library",
             f"{ALLOCATOR}::test_the_limits_follow_the_configuration",
             f"{ALLOCATOR}::test_what_a_pod_says_leaves_the_library_out_only_where_the_nodes_administrator_allows_it"),
    "21.3": (f"{ALLOCATOR}::test_two_cards_are_numbered_as_the_container_will_see_them",),
    "21.4": (f"{ALLOCATOR}::test_containers_without_cards_do_not_shift_the_others",),
    "21.5": (f"{ALLOCATOR}::test_the_oldest_of_equal_pods_is_served_first_and_ended_ones_never",),
    "21.6": (f"{PLUGIN}::test_a_call_without_a_pod_is_refused_and_no_pod_is_touched",
             f"{ALLOCATOR}::test_what_cannot_be_honoured_fails_that_pod_with_the_reason",
             f"{PLUGIN}::test_a_pod_that_cannot_be_patched_is_failed_with_the_reason"),
    "21.7": (f"{ALLOCATOR}::test_a_slot_is_a_place_of_the_card_and_its_container_gets_nothing_but_the_slice",
             f"{SLICING}::test_a_pod_gets_a_slice_that_was_cut_for_it_and_the_next_one_its_own",
             f"{SLICING}::test_a_slice_that_another_pod_holds_is_waited_for_and_the_pod_is_refused_with_its_name"),
    "21.8": ("unit/devices/nvidia_vgpu/node/test_cdi_answers.py"
             "::test_cdi_cri_names_the_devices_in_the_answers_field_and_no_card_in_the_environment",
             "unit/devices/nvidia_vgpu/node/test_cdi_answers.py::test_cdi_annotations_names_them_in_an_annotation_of_its_own",
             f"{ALLOCATOR}::test_volume_mounts_hide_the_cards_from_images_that_ask_for_all"),
    "21.9": (f"{INVENTORY}::test_handshake_answers_as_old_schedulers_need_it",),
    "21.10": (f"{ALLOCATOR}::test_preferred_ids_are_those_of_the_scheduled_cards",),
    "21.11": ("unit/node/test_feedback.py::test_the_less_important_waits_while_the_more_important_works",
              "unit/node/test_feedback.py::test_equals_do_not_wait_and_keep_their_limits"),
    "21.12": ("unit/devices/nvidia_gpushare/plugin/test_gpushare.py::test_a_pod_sees_its_card_and_its_share",
              "unit/devices/nvidia_gpushare/plugin/test_gpushare.py::test_the_factor_turns_units_into_mib"),
    # 22: defects of upstream
    "D1": (f"{ALLOCATOR}::test_the_next_segment_counts_and_not_the_total_of_the_pod",),
    "D2": (f"{ALLOCATOR}::test_containers_without_cards_do_not_shift_the_others",),
    "D3": (f"{ALLOCATOR}::test_pods_that_do_not_wait_here_are_no_candidates",
           f"{ALLOCATOR}::test_a_pod_whose_cards_were_chosen_on_another_node_is_refused"),
    "D4": (f"{ALLOCATOR}::test_the_limits_follow_the_configuration",
           f"{INVENTORY}::test_the_register_annotation_says_what_is_shared"),
    "D5": (f"{ALLOCATOR}::test_the_limits_follow_the_configuration", f"{ALLOCATOR}::test_device_specs_name_the_nodes_that_exist",
           f"{INVENTORY}::test_keys_without_effect_are_named"),
    "D6": (f"{PLUGIN}::test_without_the_right_to_make_the_device_configmap_its_defaults_hold",
           "unit/wire/test_device_config.py::test_an_empty_document_is_the_defaults_and_each_key_is_merged_alone"),
    "D7": (f"{PLUGIN}::test_upstreams_way_lists_a_device_per_unit_unless_the_list_is_too_long",),
    "D8": (f"{INVENTORY}::test_percentages_are_offered_where_somebody_wants_them_in_a_number_that_stands_in_nobodys_way",),
    "D9": (f"{PLUGIN}::test_pods_are_served_without_a_list_of_pods",),
    "D10": (f"{PLUGIN}::test_a_pod_that_cannot_be_patched_is_failed_with_the_reason",
            "unit/devices/nvidia_vgpu/plugin/test_cdi_files.py::test_a_pod_is_refused_with_the_reason_where_the_file_cannot_be_made"),
    "D11": (f"{PLUGIN}::test_a_sick_card_is_told_to_everybody_and_recovers",
            "unit/node/test_health.py::test_a_card_that_the_driver_no_longer_lists_is_sick_and_not_gone"),
    "D12": (f"{PLUGIN}::test_however_often_the_kubelet_starts_one_change_of_the_node_is_written_back_once",),
    "D13": (f"{SLICING}::test_after_a_boot_the_slices_are_there_again_and_a_pod_whose_uuid_changed_is_failed_with_the_reason",
            f"{SLICING}::test_a_card_is_recut_beside_a_running_pod_and_what_ended_is_handed_out_again_or_goes",
            f"{SLICING}::test_a_driver_that_refuses_fails_that_pod_with_its_words_and_leaves_no_half_slice"),
    "D14": ("unit/deploy/test_manifests.py::test_every_card_with_mig_finds_its_geometry_in_the_manifest_even_by_upstreams_rule",
            f"{INVENTORY}::test_a_card_that_cannot_be_cut_is_not_offered"),
    "D15": (f"{ALLOCATOR}::test_a_slice_is_opened_by_its_own_device_files",),
    "D16": (f"{PLUGIN}::test_a_sick_card_is_told_to_everybody_and_recovers",
            "unit/node/test_health.py::test_three_clean_checks_make_a_card_well"),
    "D17": (f"{SLICING}::test_slices_that_somebody_has_cut_are_resources_of_their_own_under_mixed",),
    "D18": (f"{ALLOCATOR}::test_a_container_that_runs_keeps_its_folder_whatever_a_stale_annotation_says",),
    "D19": (f"{SLICING}::test_slices_that_somebody_has_cut_are_resources_of_their_own_under_mixed",
            f"{COMMANDS}::test_a_mistake_is_one_line_that_says_what_would_be_right"),
    "D20": (f"{PLUGIN}::test_a_library_in_use_is_replaced_by_a_new_file",
            "unit/apps/node/test_host_files.py::test_a_process_that_has_the_old_library_mapped_keeps_it"),
    "D21": ("contract/test_tenant_policies.py",
            "scenarios/test_limits_that_hold.py"
            "::test_a_pod_whose_spec_lifts_its_limits_and_whose_processes_clear_theirs_keeps_to_its_share"),
    "D22": (f"{COMMANDS}::test_no_container_is_given_devices_that_nobody_switched_on",),
    "D23": ("unit/apps/monitor/test_page.py::test_the_monitor_looks_where_the_plugin_writes",),
    "D24": (f"{READER}::test_hostile_counts_and_uuids_are_cut_to_what_can_be", f"{READER}::test_what_is_no_region_says_why",
            f"{READER}::test_a_link_or_a_pipe_is_not_followed",
            "property/test_any_region.py::test_no_content_at_all_breaks_the_reader",
            f"{READER}::test_folders_of_containers_are_found_read_and_swept"),
}  # fmt: skip


@cache
def functions_of(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("number", SHOWN)
def test_what_shows_a_number_of_the_specification_is_there(number: str) -> None:
    for named in SHOWN[number]:
        file, _, test = named.partition("::")
        found = functions_of(TESTS / file)
        assert test in found if test else found, named


def test_every_example_and_every_defect_of_the_specification_has_its_tests() -> None:
    assert [*SHOWN] == [f"21.{number}" for number in range(1, 13)] + [f"D{number}" for number in range(1, 25)]
