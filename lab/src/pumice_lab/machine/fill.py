"""Writing a model into the shared state: plain data, card by card, as ``state.h`` describes it.

Only facts are filled in. Locks, accounts, lanes and instances stay zero; the libraries make them at first use.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from pumice.model.hardware import MigTable, mig_table
from pumice_lab.machine import layout
from pumice_lab.machine.model import CardModel, FaultModel, MachineModel

MIB = 1 << 20
VIRTUAL_START_NS = 1_000_000_000  # not 0, so that a forgotten time stamp is never "now"

# nvmlDeviceArchitecture_t, NVLink generation, threads of an SM, shared memory of an SM, PCIe generation
_ARCHITECTURE = {
    "pascal": (4, 1, 2048, 98304, 3),
    "volta": (5, 2, 2048, 98304, 3),
    "turing": (6, 2, 1024, 65536, 3),
    "ampere": (7, 3, 2048, 167936, 4),
    "ada": (8, 3, 1536, 102400, 4),
    "hopper": (9, 4, 2048, 233472, 5),
    "blackwell": (10, 5, 2048, 233472, 5),
}
_BRAND_TESLA, _BRAND_GEFORCE, _BRAND_NVIDIA = 2, 5, 14  # nvmlBrandType_t
_SAME_NUMA_NODE, _ACROSS_NODES = 40, 50  # nvmlGpuTopologyLevel_t


def fill_state(state: layout.State, model: MachineModel) -> None:
    """Everything but ``magic``, which the caller stores last."""
    state.version = layout.VERSION
    state.size = layout.SIZE
    state.cards = len(model.cards)
    state.driver_version = model.driver.encode()
    state.nvml_version = f"{model.cuda // 1000}.{model.driver}".encode()
    state.cuda_version = model.cuda
    state.hostname = model.name.encode()[:63]
    state.slice_ns = model.slice_us * 1000
    state.kernel_ns = int(model.kernel_us * 1000)
    state.copy_bytes_per_us = -(-model.copy_mib_per_s * MIB // 1_000_000)
    state.queue_depth = model.queue_depth
    state.overlap = model.overlap
    state.require_root = model.require_root
    state.pid_mode = ("all", "own", "none").index(model.pids)
    state.clock.mode = model.virtual_time
    state.clock.virtual_ns = VIRTUAL_START_NS
    for index, card in enumerate(model.cards):
        _fill_card(state.card[index], card, index)
        _fill_links(state.card[index], model.cards, index)
    fill_faults(state, model.faults)


def fill_faults(state: layout.State, faults: Iterable[FaultModel]) -> None:
    """Puts the faults into an unused state."""
    for row, fault in zip(state.faults, faults, strict=False):
        row.function = fault.call.encode()
        row.code, row.first, row.count = fault.code, fault.first, fault.count
        row.delay_ns, row.crash, row.card = fault.delay_ns, fault.crash, layout.NONE
        row.used = 1
        state.fault_count += 1


def _fill_card(row: layout.Card, card: CardModel, index: int) -> None:
    facts = card.preset
    architecture, _, threads, shared, pcie = _ARCHITECTURE[facts.architecture]
    geforce = "GeForce" in card.name
    serial = int.from_bytes(hashlib.sha256(card.uuid.encode()).digest()[:4], "big")
    domain, bus, device = (int(part, 16) for part in card.pci.removesuffix(".0").split(":"))
    row.name, row.uuid, row.bus_id = card.name.encode(), card.uuid.encode(), card.pci.encode()
    row.serial = b"" if geforce else f"{1_320_000_000_000 + serial}".encode()
    row.vbios = f"9{architecture}.00.{serial % 90 + 10}.00.01".encode()
    row.part_number = b"" if geforce else f"900-2G{serial % 900 + 100}-0000-000".encode()
    row.pci_domain, row.pci_bus, row.pci_device = domain, bus, device
    row.pci_device_id = facts.pci_id
    row.pci_subsystem_id = 0x134F10DE
    row.minor = index
    row.numa_node = card.numa
    row.brand = _BRAND_GEFORCE if geforce else _BRAND_TESLA if card.name.startswith("Tesla") else _BRAND_NVIDIA
    row.memory_bytes = card.memory * MIB
    row.reserved_bytes = min(card.reserved, card.memory) * MIB
    row.bar1_bytes = (256 if geforce else 1 << (card.memory - 1).bit_length()) * MIB
    row.context_bytes = card.context * MIB
    row.stranger_bytes = card.strangers * MIB
    row.sm_count, row.threads_per_sm, row.warp_size = card.sms, threads, 32
    row.l2_bytes = int(facts.l2 * MIB)
    row.shared_per_block, row.shared_per_sm, row.regs_per_sm = 49152, shared, 65536
    row.memory_bus_bits = facts.bus
    row.cc_major, row.cc_minor = facts.compute
    row.architecture = architecture
    row.clock_sm_mhz, row.clock_sm_max_mhz = facts.sm_clock, facts.sm_clock
    row.clock_mem_mhz, row.clock_mem_max_mhz = facts.memory_clock, facts.memory_clock
    row.power_max_mw = row.power_limit_mw = facts.power * 1000
    row.power_idle_mw = facts.power * 130
    row.temperature_c = 30
    row.fan_percent = 30 if geforce else layout.NONE
    row.persistence = 1
    row.ecc_capable = row.ecc_mode = not geforce
    row.pcie_generation, row.pcie_width = pcie, 16
    row.ipc_capable = row.managed_capable = row.pool_capable = row.vmm_capable = 1
    if card.mig:
        row.mig_capable = 1
        row.mig_mode = row.mig_pending = card.mig_mode
        row.mig_needs_reset = card.mig_needs_reset
        _fill_profiles(row, mig_table(card.mig))


def _fill_profiles(row: layout.Card, table: MigTable) -> None:
    row.mig_slices, row.mig_compute_slices = table.memory_slices, table.compute_slices
    row.profile_count = len(table.profiles)
    for profile, entry in zip(table.profiles, row.profiles, strict=False):
        entry.name = profile.name.encode()
        entry.number, entry.id, entry.slices = profile.kind, profile.id, profile.slices
        entry.max_count, entry.memory_mib, entry.sm_count = profile.count, profile.memory, profile.sms
        entry.copy_engines, entry.decoders, entry.encoders = profile.ce, profile.dec, profile.enc
        entry.jpeg, entry.ofa = profile.jpeg, profile.ofa
        entry.placement_count = len(profile.starts)
        for placement, start in zip(entry.placements, sorted(profile.starts), strict=False):
            placement.start, placement.size = start, profile.size


def _fill_links(row: layout.Card, cards: tuple[CardModel, ...], index: int) -> None:
    """NVLinks in the order of the model; the n-th link to a peer meets the n-th link of the peer that comes back."""
    card = cards[index]
    version = _ARCHITECTURE[card.preset.architecture][1]
    row.link_count = len(card.nvlinks)
    used: dict[int, int] = defaultdict(int)
    for link, peer in zip(row.links, card.nvlinks, strict=False):
        link.version, link.up, link.remote_card, link.remote_link = version, 1, layout.NONE, layout.NONE
        if peer >= 0:
            back = [number for number, end in enumerate(cards[peer].nvlinks) if end == index]
            link.remote_card, link.remote_link = peer, back[used[peer]]
            used[peer] += 1
    for other, peer_card in enumerate(cards):
        if other != index:
            row.topology[other] = _SAME_NUMA_NODE if peer_card.numa == card.numa else _ACROSS_NODES
