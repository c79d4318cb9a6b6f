"""Attacks of tenants on a card's limits and their results: the table behind docs/reference/attacks.md.

``python -m kit.attacks`` makes the attempts (it runs the tests that show each) and prints what came of them here and now.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kit.tenant_cases import ADDS, CASES, COVERS, LIFTS, NAMES_CARDS, NAMES_NODE, NPU_CASES, POWERFUL, REACHES, SEES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/reference/attacks.md"
HELD, REFUSED, OPEN = "held", "refused", "open"
POLICIES = "tests/contract/test_tenant_policies.py::test_the_policies_decide_every_case_as_the_rules_do"
VOIDED = "tests/contract/test_tenant_policies.py::test_containers_that_are_given_no_card_are_made_to_see_none"
PAGES = "tests/native/test_vgpu_limits_page.py"
INSIDE = f"{PAGES}::test_what_the_environment_says_lifts_nothing"
REGION = f"{PAGES}::test_an_attempt_upon_region_or_page_lifts_nothing"
FORGED = "tests/unit/devices/nvidia_vgpu/node/test_forged_assignments.py"
RESERVED = "tests/contract/test_reserved_annotations.py"
ROBUST = "tests/native/test_vgpu_robustness.py"
WITNESS = "tests/native/test_vgpu_witness.py"
IMPORTS = "tests/native/test_vgpu_imports.py"
REGION_WRITES = "tests/native/test_vgpu_region_writes.py"
TIME_WRITES = "tests/native/test_vgpu_time_writes.py"
WRITES = f"{REGION_WRITES}::test_what_a_program_holds_is_nobody_elses_whatever_is_zeroed_meanwhile"
BREAK_OUT = f"{PAGES}::test_no_way_past_the_library_that_it_can_see_gives_more"
ENTRIES = "tests/native/test_vgpu_entries.py"
BOOKS = "test_the_books_are_right_after_every_entry"
REFUSALS = "test_what_nobody_could_account_for_is_refused_where_there_is_a_limit"
MODULES = "tests/native/test_vgpu_modules.py"
SYMBOLS = "tests/native/test_vgpu_symbols.py"


class Attack(NamedTuple):
    """``outcome`` with everything of ours in place; ``why``: by what, or what to do about it. ``shown``: the test; empty where
    there can be none."""

    attempt: str
    outcome: str
    why: str
    shown: str = ""


WITHOUT = {
    LIFTS: "without the policy: held by the limits page",
    SEES: "without it: cards beyond a share have no memory; a container without a share sees them all",
    ADDS: "without it: devices beside the cards, and no more of a card",
    NAMES_NODE: "without it: every card by the image's own variable where the node lacks that resource; ours serves nobody so",
    COVERS: "without it: open, the library or its limits are another's",
    NAMES_CARDS: "without it: open where the runtime takes mounts for cards",
    REACHES: "without it: open; Pod Security `baseline` refuses host paths, too",
    POWERFUL: "without it: open; Pod Security `baseline` refuses most of it, too",
}

WITHOUT_NPU = {
    LIFTS: "without the policy: open, Ascend's runtime and HAMi's library read what the pod says last",
    SEES: "without it: open where Ascend's runtime is the node's, for it shows what the variable lists",
    COVERS: "without it: open, the library or its limits are another's",
    REACHES: "without it: open; Pod Security `baseline` refuses host paths, too",
    POWERFUL: "without it: open; Pod Security `baseline` refuses most of it, too",
}

NPU_FORGED = "tests/unit/devices/ascend_hami/node/test_npu_attacks.py"
ON_NPUS = (
    Attack("write the annotations of an assignment, of whatever type of NPU", REFUSED, "`reserved-annotations.yml`",
           f"{RESERVED}::test_tenants_cannot_write_an_assignment_by_any_door_and_may_write_all_else"),
    Attack("a larger template, the whole card, one card twice, cards of another node", REFUSED,
           "the plugin compares with the request",
           f"{NPU_FORGED}::test_what_differs_from_what_the_pod_asks_for_is_not_handed_out"),
    Attack("a larger soft share", REFUSED, "the plugin compares with the request",
           f"{NPU_FORGED}::test_a_soft_share_is_what_was_asked_for_to_the_last_megabyte"),
    Attack("the whole card of a soft share by taking its mode away", REFUSED, "the plugin compares with the request",
           f"{NPU_FORGED}::test_a_pod_that_takes_its_mode_away_does_not_get_the_card_that_it_shares"),
    Attack("a slice that another pod holds", REFUSED, "what is held is not handed out again",
           f"{NPU_FORGED}::test_what_another_pod_holds_is_not_handed_out_again"),
    Attack("a card that looks free because its holder rewrote his annotations", REFUSED, "the plugin's own memory counts first",
           f"{NPU_FORGED}::test_a_pod_whose_cards_are_rewritten_after_it_was_served_is_held_to_what_it_got"),
    Attack("claim all cards of a node, so that others get none", HELD, "what others hold follows from what they ask for",
           f"{NPU_FORGED}::test_who_claims_more_than_he_asks_for_denies_it_to_nobody"),
    Attack("write any assignment of NPUs at all", HELD, "no card is given away twice, nothing beyond the request",
           f"{NPU_FORGED}::test_whatever_is_forged_no_card_is_given_away_twice"),
    Attack("close a node's chips by a ConfigMap as its components write it, in a namespace of one's own", HELD,
           "a node's components write in `kube-system` and `mindx-dl`",
           "tests/unit/apps/scheduler/test_device_reports.py::test_a_tenants_own_word_on_a_node_closes_none_of_its_chips"),
    Attack("name the card of a pod that has not started yet, without the policy", OPEN,
           "who comes second is refused; `reserved-annotations.yml`"),
    Attack("every NPU by the image's own ASCEND_VISIBLE_DEVICES, without a share", OPEN,
           "let Ascend's runtime be a RuntimeClass and not the node's default"),
    Attack("more than a soft share from inside the container", OPEN, "HAMi's library keeps it, which is not part of Pumice"),
)  # fmt: skip

BY_API = (
    Attack("CUDA_DISABLE_CONTROL in a pod, without the policy", HELD,
           "nothing obeys it unless the node's administrator says `--allow-disable-control`",
           "tests/unit/devices/nvidia_vgpu/node/test_allocator.py::test_what_a_pod_says_leaves_the_library_out_only_where_the_nodes_administrator_allows_it"),
    Attack("write the annotations of an assignment into a new pod", REFUSED, "`reserved-annotations.yml`",
           f"{RESERVED}::test_tenants_cannot_write_an_assignment_by_any_door_and_may_write_all_else"),
    Attack("write them later, by the pod, its status or a Binding", REFUSED, "`reserved-annotations.yml`",
           f"{RESERVED}::test_tenants_cannot_write_an_assignment_by_any_door_and_may_write_all_else"),
    Attack("empty them on a running pod, so that its card looks free", REFUSED, "`reserved-annotations.yml`",
           f"{RESERVED}::test_the_scheduler_and_the_plugin_write_it_and_nobody_else_empties_it"),
    Attack("the same where the policy is not applied", HELD, "the plugin's books count before annotations",
           f"{FORGED}::test_cards_that_another_pod_holds_are_not_given_again_not_even_after_a_restart_with_its_annotation_emptied"),
    Attack("have cards held for one's own pods", HELD, "only nodes' own words count, and for a time; tenants may not write nodes",
           "tests/scenarios/test_held_places.py::test_a_pod_that_says_that_places_are_held_holds_none"),
    Attack("name node and cards in the pod, past the scheduler", REFUSED, "the plugin serves whom a Binding placed",
           f"{FORGED}::test_a_pod_that_names_its_node_and_cards_itself_was_bound_by_nobody_and_gets_nothing"),
    Attack("write more memory or cores than the container asks for", REFUSED, "the plugin compares with the request",
           f"{FORGED}::test_nothing_is_given_beyond_what_the_container_asks_for"),
    Attack("write any assignment at all", HELD, "limits stay within requests, cards within their sizes",
           "tests/property/test_forged_assignments.py::test_whatever_owners_write_limits_stay_within_the_requests_and_cards_within_their_sizes"),
    Attack("take another pod's turn at the plugin by a mirror pod", HELD, "mirror pods are no candidates",
           f"{FORGED}::test_a_mirror_pod_takes_nobodys_turn"),
    Attack("come first by the mark of a half-served pod", HELD, "the plugin's books count",
           f"{FORGED}::test_a_pod_that_only_says_that_it_is_half_served_does_not_come_first"),
    Attack("wait beside another pod for as many cards with another share", REFUSED, "nobody is served by chance",
           f"{FORGED}::test_a_call_that_may_be_for_one_of_two_pods_with_different_shares_is_refused_and_neither_is_marked"),
    Attack("ask what holds another namespace's pod up", REFUSED, "`/explain` asks the API server who may",
           "tests/contract/test_explain_guard.py::test_who_may_get_the_pod_may_ask_about_it_and_nobody_else"),
    Attack("every card, or privilege, by an ephemeral container", REFUSED, "`tenant-limits.yml`",
           "tests/contract/test_tenant_policies.py::test_a_container_for_looking_into_a_pod_is_held_to_the_same"),
    Attack("every card by the image's own NVIDIA_VISIBLE_DEVICES, without a share", HELD, "`tenant-void.yml`; without it: open",
           VOIDED),
    Attack("the same beside an amount of 0, or of memory and no card", HELD, "`tenant-void.yml`; without it: open", VOIDED),
    Attack("the same in an ephemeral container", HELD, "`tenant-void.yml`; without it: open",
           "tests/contract/test_tenant_policies.py::test_a_container_for_looking_into_a_pod_is_made_to_see_no_card"),
    Attack("every card by envFrom, without a share", HELD, "`tenant-void.yml`, whose variable comes after; without it: open",
           VOIDED),
    Attack("another team's queue, by an annotation of a pod or by what a PodGroup or a Job says", REFUSED,
           "`tenant-limits.yml`, where the namespace's annotation `pumice.io/queues` names its own; else open, as with Volcano",
           "tests/contract/test_tenant_policies.py::test_a_namespace_that_names_its_queues_uses_no_other_teams"),
    Attack("more devices by the image's own NVIDIA_GDS and the like, beside a share", OPEN,
           "no more of a card; NVIDIA's runtime reads them of an image as of a pod"),
    Attack("lift the limits by envFrom, beside a share", HELD, "the limits page",
           "tests/scenarios/test_limits_that_hold.py::"
           "test_a_pod_whose_spec_lifts_its_limits_and_whose_processes_clear_theirs_keeps_to_its_share"),
    Attack("the same by CUDA_MPS_* where cards are shared by MPS", OPEN,
           "no page there: the server holds it to the widest share of its card"),
    Attack("mount over the preload by a path that is a link in the image", OPEN,
           "a policy cannot see images; the monitor shows memory that no region tells of"),
    Attack("privileged, without a share", OPEN, "Pod Security `baseline`"),
    Attack("a namespace of one's own that the policy leaves out, by its name or by Pod Security's label `privileged`", OPEN,
           "who may make and label namespaces is the cluster's rule: the list is in the binding"),
)  # fmt: skip

FROM_INSIDE = (
    Attack("clear the environment and start a program", HELD, "the limits page", f"{PAGES}::test_the_page_alone_is_enough"),
    Attack("set the memory limit to 0, or higher", HELD, "the limits page", INSIDE),
    Attack("name another region, so that each process has a share of its own", HELD, "the page says where it lies", INSIDE),
    Attack("CUDA_DISABLE_CONTROL in a process", HELD, "nothing of the library reads it", INSIDE),
    Attack("PUMICE_VGPU_CARDS, _CONTEXT_BYTES, _RECONCILE_MS", HELD, "not read where there is a page", INSIDE),
    Attack("CUDA_OVERSUBSCRIBE", HELD, "the page says", INSIDE),
    Attack("clear LD_PRELOAD", HELD, "/etc/ld.so.preload is the plugin's, read-only", INSIDE),
    Attack("write, cut, rename or remove the limits page", HELD, "a read-only mount", REGION),
    Attack("lay a page of one's own into the image, beside another plugin", HELD, "only a read-only mount is a page",
           f"{PAGES}::test_a_file_that_nobody_mounted_is_no_page"),
    Attack("damage the page's layout by an old or later plugin", HELD, "it grants nothing then, and says so",
           f"{PAGES}::test_a_page_that_cannot_be_read_grants_nothing_and_says_so"),
    Attack("remove or rename the region", HELD, "it is a mount of its own", REGION),
    Attack("zero the region's limits, or raise them", HELD, "the limits page", REGION),
    Attack("zero the region's head, so that it is made anew", HELD, "what is held is locked, not written", WRITES),
    Attack("cut the region to nothing", HELD,
           "what is held is locked, not written", REGION),
    Attack("give the region's cards other names", HELD, "each process asks NVML and the page", REGION),
    Attack("switch core limits off in the region", HELD, "the switch is on the page", "tests/unit/apps/monitor/test_feedback.py::"
           "test_a_core_limit_is_lifted_and_set_again_on_the_page_whatever_the_tenant_writes_into_its_region"),
    Attack("fill the region with processes that are none", HELD,
           "the dead are swept, and who finds no slot gets nothing", REGION),
    Attack("use a card that was made visible and not granted", HELD, "it has no memory",
           f"{PAGES}::test_a_card_that_was_not_granted_has_no_memory"),
    Attack("make cards visible in another order than granted", HELD, "limits go by UUID",
           f"{PAGES}::test_limits_follow_the_card_wherever_it_stands_among_those_seen"),
    Attack("ask for sizes that the driver rounds up", HELD, "what the driver takes is booked",
           f"{WITNESS}::test_what_the_card_gave_never_exceeds_the_limit_whatever_was_asked_for"),
    Attack("make contexts instead of blocks", REFUSED, "reserved before they are made",
           f"{WITNESS}::test_contexts_are_refused_where_they_do_not_fit"),
    Attack("contexts of many processes at once", REFUSED, "taken by turns",
           f"{WITNESS}::test_processes_that_only_make_contexts_stay_within_the_limit_together"),
    Attack("memory nodes of graphs on another card", HELD, "booked where the node is",
           f"{WITNESS}::test_memory_of_a_graph_counts_where_its_nodes_are"),
    Attack("more pools than anybody counts", HELD,
           "every pool counts", f"{WITNESS}::test_every_pool_counts_however_many_there_are"),
    Attack("end, or be killed, at any moment", HELD, "the kernel tells who lives",
           f"{ROBUST}::test_kills_at_any_moment_lose_no_byte_and_leave_no_lock"),
    Attack("fork", HELD, "a child is a process of its own", f"{ROBUST}::test_a_forked_child_does_not_touch_the_parents_slot"),
    Attack("exec, keeping the pid", HELD,
           "the slot goes to the new program", f"{ROBUST}::test_an_exec_gives_the_slot_to_the_new_program"),
    Attack("a PID namespace of one's own", HELD, "liveness is a lock, not a pid",
           f"{ROBUST}::test_a_process_of_another_pid_namespace_is_not_taken_for_dead"),
    Attack("the driver's functions by dlsym, cuGetProcAddress, by version or flavour", HELD, "each look-up answers with ours",
           f"{SYMBOLS}::test_get_proc_address_answers_with_the_version_and_stream_flavour_asked_for"),
    Attack("dlsym fetched from the C library's own handle", HELD, "that one is ours, too",
           f"{SYMBOLS}::test_the_look_up_that_the_c_library_hands_out_is_ours"),
    Attack("make others on the card wait by CUDA_TASK_PRIORITY in the pod's spec", HELD, "a PriorityClass above 0 grants it",
           "tests/unit/apps/monitor/test_feedback.py::"
           "test_what_a_pod_says_of_its_priority_makes_nobody_wait_unless_a_priority_class_grants_it"),
    Attack("make others on the card wait by the region's words", HELD, "cards and priority come from the grant",
           "tests/unit/apps/monitor/test_feedback.py::test_what_a_tenant_writes_into_its_region_makes_nobody_wait"),
    Attack("a region that breaks who reads it", HELD, "read with a budget, never mapped",
           "tests/property/test_any_region.py::test_no_content_at_all_breaks_the_reader"),
    Attack("links in one's folder to files of the node", HELD, "not followed",
           "tests/unit/adapters/region/test_reader.py::test_a_link_or_a_pipe_is_not_followed"),
    Attack("go on although the monitor holds one back (recent_kernel)", HELD,
           "the word is on the limits page, and leaves a share",
           "tests/unit/apps/monitor/test_feedback.py::"
           "test_who_is_held_back_keeps_what_it_was_granted_or_a_twentieth_by_a_page_that_it_cannot_write"),
    Attack("write smaller figures into siblings' slots of the region", HELD,
           "monitors are told so for a second; locks of the kernel decide",
           f"{REGION_WRITES}::test_a_program_goes_on_and_is_told_what_it_holds_once_nobody_damages_the_region_any_more"),
    Attack("zero whatever the region is known by, and then whoever is in it", HELD, "it is made anew beneath who lives", WRITES),
    Attack("a million writes into the region, random and aimed, while programs take memory by every path", HELD,
           "no byte of it decides about memory",
           f"{REGION_WRITES}::test_random_and_aimed_writes_while_programs_allocate_give_never_a_byte_more"),
    Attack("lock bytes of the region where the library has its own", HELD, "it counts as held: the share gets smaller",
           f"{REGION_WRITES}::test_locks_that_a_tenant_adds_make_his_share_smaller_and_no_longer_than_they_last"),
    Attack("lock the name of another's exported memory, so that one's own is taken for it", OPEN,
           "what is passed on by two names and let go by one may count once; the monitor shows a region above its limit"),
    Attack("write credit of GPU time into the region", HELD, "each process keeps the budget, and says in locks what it uses",
           f"{TIME_WRITES}::test_words_of_time_that_somebody_goes_on_writing_give_no_more_than_the_limit_and_stop_nobody"),
    Attack("write a debt of GPU time, or that others are busy, so that siblings stand still", HELD,
           "words that no lock bears out are waited for a moment",
           f"{TIME_WRITES}::test_words_of_time_that_somebody_goes_on_writing_give_no_more_than_the_limit_and_stop_nobody"),
    Attack("a million writes into the words of time while programs launch", HELD, "the same",
           f"{TIME_WRITES}::test_a_million_random_writes_of_time_give_no_more_than_the_limit"),
    Attack("write into the node's file that the card is one's own for ever", HELD,
           "turns are waited for as far as locks show that somebody uses the card; they may be lost",
           f"{TIME_WRITES}::test_a_neighbour_that_says_the_card_is_his_for_ever_costs_nobody_his_share"),
    Attack("lock lanes of the node's file, so that one's own launches seem to have met others'", OPEN,
           "as calling past every name; the monitor shows who uses the card"),
    Attack("a program linked statically, or of another C library", OPEN, "nothing is preloaded into it"),
    Attack("read the driver's file and call past every name", OPEN,
           "a process may run what it likes; no library holds against that"),
    Attack("ioctls to /dev/nvidia0 without the driver's library", OPEN, "as above; MIG and the driver's own limits hold"),
    Attack("chroot, or a user namespace with mounts of its own", OPEN,
           "the preload is another root's; forbid user namespaces and SYS_CHROOT"),
    Attack("export memory, import it elsewhere and release the original", HELD, "who holds it last pays",
           f"{IMPORTS}::test_nobody_gets_more_by_passing_on_what_he_lets_go"),
    Attack("export memory, import it elsewhere and die", HELD, "who holds it pays from then on",
           f"{IMPORTS}::test_memory_of_who_died_is_paid_for_by_who_imported_it"),
    Attack("import memory of another container", HELD, "whose exporter is not known here is paid for by who imports",
           f"{IMPORTS}::test_memory_of_another_container_is_paid_for_by_who_imports_it"),
    Attack("keep memory alive by its mapping alone", HELD, "a mapping holds it, also of what was imported",
           f"{IMPORTS}::test_a_mapping_holds_what_was_imported"),
    Attack("keep memory alive by the descriptor that it was exported by, held by no process that uses the card", OPEN,
           "nobody is told when a file is closed; the emulated driver keeps none so"),
    Attack("copies and memsets without a break", OPEN,
           "those between host and card take no compute ([why not in time](../adr/0106-copies-are-not-rate-limited.md))"),
    Attack("keep memory alive by a multicast object alone", HELD, "it is booked until it is unbound or the object is gone",
           f"{IMPORTS}::test_each_process_of_a_multicast_object_pays_for_what_it_bound_until_it_lets_go"),
    Attack("memory of a context for a part of the card (green context) that has ended", HELD,
           "it is the primary context's, and booked as that", f"{ENTRIES}::{BOOKS}"),
    Attack("memory of Vulkan and the like, imported", REFUSED, "who imports it pays", f"{ENTRIES}::{BOOKS}"),
    Attack("shut NVML down beneath the library", HELD, "it asks again, for itself", f"{ENTRIES}::{BOOKS}"),
    Attack("memory mapped into a sparse array, its handle released", REFUSED, "nobody tells when it is let go",
           f"{ENTRIES}::{REFUSALS}"),
    Attack("memory bound to a logical endpoint, its handle released", REFUSED, "nobody tells when it is let go",
           f"{ENTRIES}::{REFUSALS}"),
    Attack("a checkpoint, restored onto another card", REFUSED, "nobody has booked it there", f"{ENTRIES}::{REFUSALS}"),
    Attack("variables of modules instead of blocks", REFUSED, "the image says what they take",
           f"{MODULES}::test_a_module_above_the_limit_is_never_on_the_card"),
    Attack("heaps, stacks and printf buffers of the card", REFUSED, "reserved before they grow",
           f"{MODULES}::test_a_heap_or_stacks_above_the_limit_are_refused_and_never_on_the_card"),
    Attack("code that the driver loads later", HELD, "found and booked when it is there",
           f"{MODULES}::test_code_that_is_loaded_with_its_first_use_is_charged_then"),
    Attack("modules of two processes at once", REFUSED, "one limit for both",
           f"{MODULES}::test_modules_of_two_processes_share_one_limit"),
    Attack("more GPU time by many streams", HELD, "what is paid is the time in which any runs",
           "tests/native/test_vgpu_streams.py::test_streams_whose_kernels_fill_the_card_do_not_exceed_the_limit"),
    Attack("more GPU time by contexts for parts of the card, side by side", HELD, "what is paid is the time in which any runs",
           "tests/native/test_vgpu_streams.py::"
           "test_green_contexts_on_parts_of_a_card_do_the_limits_share_of_what_they_do_natively"),
    Attack("more GPU time by another entry: graphs, cooperative, old launches", HELD, "each is limited",
           f"{ENTRIES}::test_every_way_to_launch_is_limited"),
    Attack("more GPU time by many processes", HELD, "one budget, shared by time",
           "tests/native/test_vgpu_fair.py::test_processes_get_the_same_whatever_they_launch"),
    Attack("more GPU time by kernels of unlike lengths", HELD, "what was measured has the last word",
           "tests/native/test_vgpu_limiter.py::test_every_shape_of_launch_is_limited"),
    Attack("hold the lock under which a region is made, or stop who holds it", HELD, "the others wait five seconds for it",
           f"{ROBUST}::test_who_makes_the_region_may_take_long_and_nobody_takes_the_limit_for_itself_meanwhile"),
    Attack("a dozen processes by every path at once: pools, graphs, modules, heaps, contexts, what is passed on", HELD,
           "what shrinks by itself is looked at before it is counted on",
           f"{WITNESS}::test_twelve_processes_by_many_paths_at_once_never_exceed_the_limit"),
    Attack("small modules in blocks of small arrays and small memory, which then go", OPEN,
           "a block of 2 MiB each is not booked until the library's next look, a second at most"),
    Attack("a library of the system before ours, LD_AUDIT, LD_BIND_NOW, GLIBC_TUNABLES", HELD,
           "/etc/ld.so.preload is loaded all the same", INSIDE),
    Attack("load a copy of the driver's file", HELD, "its names are looked up by ours", BREAK_OUT),
    Attack("the driver in a namespace of the loader (dlmopen)", HELD, "its names are looked up by ours", BREAK_OUT),
    Attack("the driver bound deeply (RTLD_DEEPBIND)", HELD, "its names are looked up by ours", BREAK_OUT),
    Attack("a copy of the driver first in LD_LIBRARY_PATH", HELD, "whichever is loaded is behind ours", BREAK_OUT),
    Attack("start a program by the loader itself", HELD, "the loader reads /etc/ld.so.preload", BREAK_OUT),
    Attack("posix_spawn without an environment", HELD, "the limits page", BREAK_OUT),
    Attack("sixteen threads at once", HELD, "announced before it is looked at", BREAK_OUT),
    Attack("fork past the C library", HELD, "the child has no memory of its own", BREAK_OUT),
    Attack("an orphan of another session that keeps memory", HELD, "it is of the region, not of a parent", BREAK_OUT),
    Attack("close every descriptor, so that the slot's lock is lost", HELD, "a lock lasts as long as the mapping", BREAK_OUT),
    Attack("no descriptors to be had for the region", HELD, "no region, no memory", BREAK_OUT),
    Attack("a folder in the image, on the way to the library, that the program's user may not enter", OPEN,
           "the loader passes the preload over; the monitor shows memory that no region tells of"),
    Attack("a filter of one's own (seccomp) that answers the library's calls of the kernel", OPEN,
           "as with a library that answers for the C library"),
    Attack("stop a sibling that holds memory (SIGSTOP)", HELD, "who is stopped lives", BREAK_OUT),
    Attack("write over the library's variables, or map another page over its limits, in one's own memory", OPEN,
           "a process may write its own memory; the monitor shows a region above its limit"),
    Attack("a library of one's own before ours that answers for the C library (clock, locks, files)", OPEN,
           "as calling past every name; the monitor shows memory that no region tells of"),
    Attack("ptrace a sibling and allocate in its name", OPEN, "siblings are one tenant: it is booked in the sibling's slot"),
    Attack("graphics interfaces (Vulkan, OpenGL) for memory of their own", OPEN,
           "let NVIDIA_DRIVER_CAPABILITIES be compute,utility; the monitor shows memory that no region tells of"),
    Attack("export memory as a DMA buffer, free it and keep the descriptor", OPEN, "as with the descriptors of exported memory"),
)  # fmt: skip


def by_spec() -> Iterator[Attack]:
    """Every case of a pod's spec that is refused for what it would get."""
    for case in CASES:
        if case.refused in WITHOUT and case not in NPU_CASES:
            yield Attack(case.title, REFUSED, WITHOUT[case.refused], POLICIES)


def by_spec_on_npus() -> Iterator[Attack]:
    for case in NPU_CASES:
        if case.refused in WITHOUT_NPU:
            yield Attack(case.title, REFUSED, WITHOUT_NPU[case.refused], POLICIES)


def parts() -> list[tuple[str, list[Attack]]]:
    return [
        ("By what a pod's spec says", list(by_spec())),
        ("By the API server and the node's plugin", list(BY_API)),
        ("From inside a container", list(FROM_INSIDE)),
        ("Upon NPUs", [*by_spec_on_npus(), *ON_NPUS]),
    ]


def render() -> str:
    """The page."""
    every = [attack for _, attacks in parts() for attack in attacks]
    counts = ", ".join(f"{sum(a.outcome == outcome for a in every)} {outcome}" for outcome in (HELD, REFUSED, OPEN))
    lines = [
        "# Attacks", "",
        "What a tenant may try to get more of a card than was granted. Where the policies of",
        "[Kubernetes](../how-to/kubernetes.md) are applied, this comes of it:", "",
        f"- **{REFUSED}**: said no to, with the reason", f"- **{HELD}**: it goes through and brings nothing",
        f"- **{OPEN}**: it brings something; what holds against it, or that nothing does, stands beside it", "",
        f"{len(every)} attempts: {counts}. `python -m kit.attacks` in a source tree makes them and prints what comes of",
        "them there (the ones on the API server want `KUBEBUILDER_ASSETS`). All but the last part are about",
        "NVIDIA's cards, and nothing of it was tried on a real one.", "",
    ]  # fmt: skip
    for title, attacks in parts():
        lines += [f"## {title}", "", "| attempt | outcome | why |", "|---|---|---|"]
        lines += [f"| {a.attempt} | {a.outcome} | {a.why} |" for a in attacks]
        lines.append("")
    return "\n".join(lines)


def tests_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def main() -> int:
    """Each attempt with what its test says here: as written, otherwise, or not tried."""
    said: dict[str, str] = {}
    for shown in sorted({attack.shown for _, attacks in parts() for attack in attacks if attack.shown}):
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", shown],
                              cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip
        last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
        said[shown] = "NOT SO" if done.returncode else "as written" if "passed" in last else "not tried here"
    for title, attacks in parts():
        print(f"\n{title}")
        for attack in attacks:
            print(f"  {attack.outcome:8}{said.get(attack.shown, 'no test'):15}{attack.attempt}")
    return 1 if "NOT SO" in said.values() else 0


if __name__ == "__main__":
    sys.exit(main())
