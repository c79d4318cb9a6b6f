"""The layout of a machine's shared state: a mirror of ``lab/native/include/machine/state.h``.

The header explains the fields; ``lab/tests/unit/machine/test_machine_layout.py`` compares every offset and size with the C
compiler's.
"""

from __future__ import annotations

from ctypes import Structure, c_char, c_int32, c_uint16, c_uint32, c_uint64, sizeof

MAGIC = 0x31454E494843414D
VERSION = 4
NONE = 0xFFFFFFFF
CARDS = 16
PROCESSES = 256
PROFILES = 24
PLACEMENTS = 8
INSTANCES = 8
LANES = 9
LINKS = 18
FAULTS = 64
XIDS = 64
HISTORY = 256
PARTICIPANTS = 1024
SHARES = 512
HOLDERS = 32
MARKS = 256
BUCKETS = 16

_u32 = c_uint32
_u64 = c_uint64


def words(names: str, kind: type = _u32) -> list[tuple[str, type]]:
    """Fields of one type."""
    return [(name, kind) for name in names.split()]


class Lock(Structure):
    _fields_ = [("opaque", _u64 * 8)]


class Placement(Structure):
    _fields_ = words("start size")


class Profile(Structure):
    _fields_ = [
        ("name", c_char * 32),
        *words("number id slices max_count"),
        ("memory_mib", _u64),
        *words("sm_count copy_engines decoders encoders jpeg ofa p2p placement_count"),
        ("placements", Placement * PLACEMENTS),
    ]


class ComputeInstance(Structure):
    _fields_ = [
        *words("used id slices start profile reserved"),
        ("generation", _u64),
        ("uuid", c_char * 48),
    ]


class GpuInstance(Structure):
    _fields_ = [
        *words("used id profile start size reserved"),
        ("generation", _u64),
        ("compute", ComputeInstance * INSTANCES),
    ]


class Lane(Structure):
    _fields_ = [
        *words("now_ns used_bytes busy_ns slice_left_ns", _u64),
        *words("current started"),
        ("bucket_epoch", _u64),
        ("bucket_busy_ns", _u64 * BUCKETS),
    ]


class Link(Structure):
    _fields_ = words("remote_card version up remote_link")


class Card(Structure):
    _fields_ = [
        ("name", c_char * 96),
        ("uuid", c_char * 48),
        ("bus_id", c_char * 32),
        ("serial", c_char * 32),
        ("vbios", c_char * 32),
        ("part_number", c_char * 32),
        ("cpu_affinity", c_char * 64),
        *words("pci_domain pci_bus pci_device pci_device_id pci_subsystem_id minor"),
        ("numa_node", c_int32),
        ("brand", _u32),
        *words("memory_bytes reserved_bytes bar1_bytes context_bytes stranger_bytes", _u64),
        *words("sm_count threads_per_sm warp_size l2_bytes"),
        *words("shared_per_block shared_per_sm regs_per_sm memory_bus_bits cc_major cc_minor architecture"),
        *words("clock_sm_mhz clock_mem_mhz clock_sm_max_mhz clock_mem_max_mhz"),
        *words("power_idle_mw power_max_mw power_limit_mw temperature_c fan_percent"),
        *words("persistence compute_mode ecc_capable ecc_mode"),
        *words("ecc_corrected ecc_uncorrected", _u64),
        *words("pcie_generation pcie_width"),
        ("peak_bytes", _u64),
        ("settings_reserved", _u32 * 4),
        *words("link_count lost ipc_capable managed_capable pool_capable vmm_capable"),
        ("links", Link * LINKS),
        ("topology", _u32 * CARDS),
        *words("mig_capable mig_mode mig_pending mig_needs_reset"),
        *words("mig_slices mig_compute_slices profile_count mig_reserved"),
        ("profiles", Profile * PROFILES),
        ("lock", Lock),
        ("generation", _u64),
        ("instances", GpuInstance * INSTANCES),
        ("lanes", Lane * LANES),
    ]


class Account(Structure):
    _fields_ = [
        *words("bytes peak_bytes requested_bytes context_bytes managed_bytes host_bytes allocations", _u64),
        *words("submitted_ns served_ns launches copies_bytes", _u64),
        *words("contexts lane gi_id ci_id mark_head mark_tail mps_server mps_percent"),
        *words("mps_limit_bytes rest_until_ns", _u64),
        ("bucket_epoch", _u64),
        ("bucket_busy_ns", _u64 * BUCKETS),
    ]


class Process(Structure):
    _fields_ = [
        *words("state pid"),
        *words("start_ticks pid_namespace attached_ns generation", _u64),
        ("name", c_char * 64),
        ("accounts", Account * CARDS),
    ]


class Mark(Structure):
    _fields_ = words("position_ns time_ns", _u64)


class Summary(Structure):
    _fields_ = words("peak_bytes leaked_bytes busy_ns submitted_ns launches reserved", _u64)


class Past(Structure):
    _fields_ = [
        ("sequence", _u64),
        *words("pid killed"),
        *words("start_ticks ended_ns", _u64),
        ("name", c_char * 64),
        ("cards", Summary * CARDS),
    ]


class Share(Structure):
    _fields_ = [*words("id bytes", _u64), *words("card holders"), ("slots", c_uint16 * HOLDERS)]


class Participant(Structure):
    _fields_ = [
        *words("pid tid"),
        *words("start_ticks pid_namespace deadline_ns", _u64),
        *words("joined waiting"),
    ]


class Clock(Structure):
    _fields_ = [
        *words("mode tick"),
        ("virtual_ns", _u64),
        ("lock", Lock),
        *words("participant_high reserved"),
        ("participants", Participant * PARTICIPANTS),
    ]


class Fault(Structure):
    _fields_ = [
        ("used", _u32),
        ("code", c_int32),
        *words("first count delay_ns calls hits", _u64),
        *words("card crash"),
        ("function", c_char * 64),
    ]


class Xid(Structure):
    _fields_ = [
        *words("sequence time_ns xid event_type", _u64),
        *words("card gi_id ci_id reserved"),
    ]


class State(Structure):
    _fields_ = [
        ("magic", _u64),
        *words("version cards"),
        ("size", _u64),
        ("driver_version", c_char * 32),
        ("nvml_version", c_char * 32),
        *words("cuda_version locks_ready"),
        ("hostname", c_char * 64),
        ("boot_id", _u64 * 2),
        *words("slice_ns kernel_ns copy_bytes_per_us", _u64),
        *words("queue_depth overlap require_root pid_mode"),
        ("settings_reserved", _u64 * 4),
        *words("fault_count faults_reserved"),
        ("xid_sequence", _u64),
        *words("xid_futex process_high"),
        *words("history_sequence process_generation", _u64),
        ("lock", Lock),
        ("clock", Clock),
        ("faults", Fault * FAULTS),
        ("xids", Xid * XIDS),
        ("card", Card * CARDS),
        ("history", Past * HISTORY),
        ("processes", Process * PROCESSES),
        ("share_ids", _u64),
        ("shares", Share * SHARES),
        ("marks", Mark * MARKS * CARDS * PROCESSES),
    ]


SIZE = sizeof(State)

# C name of each structure, for the test that asks the compiler.
MIRRORED: dict[str, type[Structure]] = {
    "machine_lock": Lock,
    "machine_placement": Placement,
    "machine_profile": Profile,
    "machine_compute_instance": ComputeInstance,
    "machine_gpu_instance": GpuInstance,
    "machine_lane": Lane,
    "machine_link": Link,
    "machine_card": Card,
    "machine_account": Account,
    "machine_process": Process,
    "machine_mark": Mark,
    "machine_summary": Summary,
    "machine_past": Past,
    "machine_share": Share,
    "machine_participant": Participant,
    "machine_clock": Clock,
    "machine_fault": Fault,
    "machine_xid": Xid,
    "machine_state": State,
}
