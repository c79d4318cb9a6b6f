"""A program of several streams: ``python -m benchmarks.native.many_streams STREAMS KERNEL_NS MILLISECONDS``.

Keeps two kernels in flight on each stream, as long as the machine's clock says; prints how many were done.
"""

from __future__ import annotations

import ctypes
import sys

from pumice.adapters.load import SPIN, Driver, Time

IN_FLIGHT = 2
DISABLE_TIMING = 2


def work(driver: Driver, clock: Time, streams: int, kernel_ns: int, milliseconds: int) -> int:
    kernel = driver.kernel(SPIN, "pumice_spin_ns")
    values = (ctypes.c_uint64(kernel_ns), ctypes.c_uint64(1))
    parameters = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
    lanes = [(driver.stream(), [event(driver) for _ in range(IN_FLIGHT)]) for _ in range(streams)]
    for stream, events in lanes:
        for one in events:
            driver.launch(kernel, parameters, stream)
            driver.check("cuEventRecord", one, stream)
    done, turn, end = 0, 0, clock.now() + milliseconds * 1_000_000
    while clock.now() < end:
        for stream, events in lanes:
            oldest = events[turn % IN_FLIGHT]
            driver.check("cuEventSynchronize", oldest)
            done += 1
            driver.launch(kernel, parameters, stream)
            driver.check("cuEventRecord", oldest, stream)
        turn += 1
    return done


def event(driver: Driver) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    driver.check("cuEventCreate", ctypes.byref(made), ctypes.c_uint(DISABLE_TIMING))
    return made


if __name__ == "__main__":
    cuda = Driver()
    cuda.use(cuda.device(0))
    with Time(cuda) as time:
        print(work(cuda, time, *(int(word) for word in sys.argv[1:4])))
