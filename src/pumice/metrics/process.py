"""The usual metrics of the process itself, by the names that every runtime's client library uses (Volcano
pkg/scheduler/metrics)."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.metrics.text import MetricFamily, counter, gauge


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """Figures of a process from the system. ``started`` in Unix seconds."""

    cpu_seconds: float
    resident: int
    virtual: int
    started: float
    open_files: int
    most_files: int


def process_families(reading: ProcessReading | None) -> list[MetricFamily]:
    """None where the system does not tell."""
    if reading is None:
        return []
    return [
        counter("process_cpu_seconds_total", "User and system time", [({}, reading.cpu_seconds)]),
        gauge("process_resident_memory_bytes", "Resident memory", [({}, reading.resident)]),
        gauge("process_virtual_memory_bytes", "Virtual memory", [({}, reading.virtual)]),
        gauge("process_start_time_seconds", "Start, in Unix seconds", [({}, reading.started)]),
        gauge("process_open_fds", "Open file descriptors", [({}, reading.open_files)]),
        gauge("process_max_fds", "File descriptors that may be open", [({}, reading.most_files)]),
    ]
