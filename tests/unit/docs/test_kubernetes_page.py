"""No sentence of docs/how-to/kubernetes.md is untested: each stands in this table beside the test that shows it.

The commands in its blocks are typed by tests/contract/test_installing.py, tests/contract/test_chart.py and tests/e2e.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/how-to/kubernetes.md"
SHOWN = {
    # in a file of tests, by the name of one: how the sentences begin, or the rows of a table, that it shows
    "contract/test_ways_over.py": {
        "test_from_volcano_and_back_half_by_half": (
            "Pumice takes the places of Volcano's scheduler", "It keeps their names",
            "Volcano's deployments and plugin are deleted first"),
        "test_every_block_of_the_pages_is_run": ("Who has [Volcano]",),
    },
    "unit/apps/doctor/test_node.py": {
        "test_each_fault_is_found_by_its_check_with_its_repair": ("Drivers and the NVIDIA container runtime are on",),
    },
    "unit/deploy/test_image.py": {
        "test_every_manifest_names_the_image_that_is_built": ("The image is built from this source tree",),
        "test_where_there_are_no_debian_packages_none_is_made": ("On Debian or Ubuntu, without Docker",),
        "test_a_wheel_for_another_kind_of_machine_is_refused": ("It leaves `dist/pumice-image.tar`",),
        "test_who_built_it_and_when_leaves_no_trace": ("It leaves `dist/pumice-image.tar`",),
        "test_daemons_and_licences_are_in_it_and_tests_are_not": (
            "`deploy/image/contents.toml` says what is in it",),
        "test_the_dockerfile_says_what_the_image_is_made_of": ("`deploy/image/Dockerfile` is made of the same list",),
    },
    "contract/test_webhook.py": {
        "test_a_tenant_that_lifts_its_limits_is_refused_by_the_admission_server_too": ("Where the cluster has no such policies",),
        "test_while_the_server_is_down_no_job_passes_unseen": ("The admission server registers itself",),
        "test_what_is_registered_belongs_to_the_servers_role_and_goes_with_it": (
            "What it registers belongs to its ClusterRole", "The garbage collector takes it away with that role"),
    },
    "contract/test_installing.py": {
        "test_every_command_of_the_page_is_taken_in_its_order_and_makes_what_its_file_holds": (
            "For legacy GPU sharing", "On nodes with Ascend NPUs", "To have 310P chips cut as MindCluster does"),
    },
    "contract/test_node_side.py": {
        "test_the_node_object_says_what_the_plugin_advertises": ("`kubectl get node NODE -o yaml` shows",),
    },
    "contract/test_doctor_cluster.py": {
        "test_all_is_well_where_all_is_installed_and_each_fault_is_named_where_it_is_made": (
            "If it does not, `pumice doctor cluster` and, on a node",),
    },
    "scenarios/test_deployed_by_manifests.py": {
        "test_the_manifests_bring_up_daemons_that_serve_a_pod_by_the_rights_of_their_accounts": (
            "To try the same manifests on one machine", "Or take the chart", "Then neither the directory",
            "Scheduler: `:8080/metrics`", "Node: `:9394/metrics`"),
    },
    "unit/deploy/test_chart.py": {
        "test_the_chart_renders_the_manifests_object_by_object": (
            "The chart renders the manifests themselves", "| cards that are cut, on nodes", "| legacy GPU sharing"),
        "test_policies_come_where_the_api_server_has_them_and_are_told_of_where_not": (
            "Where the API server lacks the policies' kinds",),
        "test_a_value_of_the_wrong_type_is_refused_by_its_name_and_so_is_a_name_that_nobody_knows": (
            "A name or a type that is not known",),
    },
    "scenarios/test_chart_values.py": {
        "test_these_tests_speak_of_every_value": ("All else is on request",),
        "test_one_image_serves_all": ("| my registry's image",),
        "test_replicas_keep_to_different_nodes_and_one_at_a_time_is_disturbed": ("| two replicas",),
        "test_shards_are_schedulers_with_a_lease_each_that_divide_nodes_and_jobs": ("| several schedulers",),
        "test_configuration_is_written_as_it_is_given": ("| another configuration of the scheduler",),
        "test_policies_are_switched_off_one_by_one_and_leave_the_namespaces_out_that_are_named": (
            "| no policies, or none that hold",),
        "test_the_npus_plugin_goes_where_it_is_sent": ("| NPUs as HAMi",),
        "test_how_cards_are_handed_out_is_said_by_the_plugins_flags_and_cdi_gets_its_folder": (
            "| CDI in place of variables",),
        "test_only_the_served_ports_are_reachable_where_that_is_asked_for": ("| only the ports that are served",),
        "test_prometheus_is_told_of_every_daemon_where_that_is_asked_for": ("| Prometheus' operator to read",),
    },
    "contract/test_chart.py": {
        "test_the_guides_commands_do_what_it_says": (
            "To see what would be written",
            "With a newer chart bring them up to date",
            "What `kubectl` made of the manifests",
        ),
        "test_a_release_is_changed_and_put_back_and_what_the_daemons_wrote_stays": (
            "what the scheduler and the plugins wrote stays",),
        "test_what_somebody_changed_by_hand_is_not_written_over_unasked": (
            "What somebody changed by hand", "`--force-conflicts` writes the chart's over it"),
        "test_jobs_and_queues_and_their_kinds_outlive_a_release": (
            "Helm leaves kinds that are there", "At the end queues, jobs and their kinds stay"),
        "test_kinds_of_another_version_are_refused_and_fields_that_would_be_dropped_are_told": (
            "The chart refuses ones of another version",),
        "test_two_schedulers_of_one_name_are_refused_until_one_rests": ("A scheduler elsewhere that answers",),
    },
    "contract/test_tenant_policies.py": {
        "test_who_may_be_privileged_runs_the_node_and_may_say_all_of_it": ("| namespaces whose pods run the node",),
    },
    "scenarios/test_deployed_by_the_chart.py": {
        "test_a_release_is_changed_and_put_back_under_pods_that_allocate_and_leaves_no_server_that_is_asked": (
            "Changes, and the way back, end no pod",),
    },
    "e2e/test_the_image.py": {
        "test_the_chart_takes_the_daemons_over_and_changes_them_and_back_under_pods_that_run": (
            "Fields stay kubectl's as well",),
        "test_the_manifests_as_they_are_run_the_image_and_the_guides_pod_has_its_share": (
            "Hand it to the containerd of each node",),
    },
    "golden/test_mixed_versions.py": {
        "test_upstreams_plugin_serves_what_our_scheduler_writes": ("Scheduler and node plugin meet in annotations",),
        "test_our_scheduler_places_by_the_cards_of_every_plugin": ("The newest upstream plugin and scheduler pair",),
        "test_a_scheduler_with_the_handshake_never_loses_the_node": ("For a plugin up to v1.12",),
    },
    "unit/deploy/test_manifests.py": {
        "test_the_scheduler_configuration_is_the_guides": ("`volcano-system/volcano-scheduler-configmap` holds",),
        "test_the_device_configuration_is_understood_without_a_warning": (
            "`kube-system/volcano-vgpu-device-config` holds",),
    },
    "unit/apps/scheduler/test_no_valid_configuration.py": {
        "test_one_that_breaks_later_leaves_the_last_good_one_in_force_and_says_so_on_its_pages": (
            "the scheduler reads a change at once", "It refuses a broken one"),
        "test_a_typo_before_the_start_leaves_every_pod_waiting_until_it_is_mended_and_is_told_everywhere": (
            "With none yet it is unready",),
    },
    "unit/devices/nvidia_vgpu/plugin/test_vgpu_plugin.py": {
        "test_the_device_configmap_is_made_where_it_is_missing_and_left_as_people_wrote_it": (
            "the plugin makes it where it is missing",),
    },
    "unit/devices/lint/test_lint.py": {
        "test_the_command_exits_with_1_on_findings_and_2_on_unreadable_files": ("Check both before applying",),
    },
    "unit/apps/monitor/test_page.py": {
        "test_cards_and_containers_are_told_as_upstream_names_them": ("Names and labels are upstream's",),
    },
    "unit/deploy/test_observability.py": {
        "test_a_dashboard_is_what_its_table_says": ("Dashboards and alerts",),
    },
}  # fmt: skip
UNTRIED = ("Registries take such layouts",)
"""Sentences without a test, which say so themselves."""


def sentences() -> list[str]:
    """Of its prose, split where one ends; a row of a table is one."""
    text = re.sub(r"^ *<!--.*-->\n", "", PAGE.read_text("utf-8"), flags=re.M)
    text = re.sub(r"^ *(?:\d\. )?```sh\n.*?^ *```\n", "\n", text, flags=re.M | re.S)
    blocks = [" ".join(block.split()) for block in re.split(r"\n\s*\n|\n(?=\d\. |\| |#)|(?<=---\|)\n", text)]
    blocks = [re.sub(r"^\d\.(?: |$)", "", block) for block in blocks if not block.startswith(("#", "| I want", "|---"))]
    parts = [[block] if block.startswith("|") else re.split(r"(?<=[.;])\s+", block) for block in blocks]
    return [one for part in parts for one in part if one]


def test_every_sentence_has_its_test_and_every_test_its_sentence() -> None:
    said, shown = sentences(), [one for tests in SHOWN.values() for beginnings in tests.values() for one in beginnings]
    assert len(said) > 50
    assert [one for one in said if not one.startswith((*shown, *UNTRIED, "[the pages]"))] == []
    assert [beginning for beginning in (*shown, *UNTRIED) if not any(one.startswith(beginning) for one in said)] == []
    assert all("nobody has tried" in one for one in said if one.startswith(UNTRIED))


@pytest.mark.parametrize("path", SHOWN)
def test_the_tests_are_there(path: str) -> None:
    text = (ROOT / "tests" / path).read_text("utf-8")
    assert [name for name in SHOWN[path] if f"def {name}(" not in text] == []
