"""Two fixed pieces of work whose speed says how quick the machine is right now."""

from __future__ import annotations

import time

import msgspec
from kit.objects import pod

from benchmarks.rescan import reference
from pumice.wire.objects import Pod, decode


def rescan() -> float:
    """Pods per CPU second of the plain rescan of 5,000 nodes, over two seconds."""
    return reference(5000, seconds=2.0)


def decode_pods(count: int = 5000) -> float:
    """CPU seconds of the typed decode of so many pods of about 1 KB."""
    raw = [msgspec.json.encode(pod(f"p{i}", mib=1000, cores=10, cpu="1", memory="1Gi")) for i in range(count)]
    began = time.process_time()
    kept = [decode(Pod, body) for body in raw]
    taken = time.process_time() - began
    assert len(kept) == count
    return taken


def yardsticks() -> dict[str, float]:
    """The yardsticks of this machine, so that ratios survive a change of machine: the plain rescan of 5,000 nodes (pods per
    CPU second) and the typed decode of 5,000 pods (seconds of CPU)."""
    return {"rescan_pods_per_s": round(rescan(), 1), "decode_5000_pods_s": round(decode_pods(), 3)}
