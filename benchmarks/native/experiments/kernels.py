"""Kernels as PTX text: work of a fixed amount, because a clock would run on while other programs have the card.

All take (ns, count, pointer). An emulated card takes ``ns`` and touches no data; a real one does ``count`` rounds, or reads
``count`` words of 16 bytes, at ``pointer``, and does not look at ``ns``.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint64, c_void_p

from benchmarks.native.experiments.cuda import SM_COUNT, Cuda, Failed

# Every driver compiles PTX of an older target for its card; newer ones may refuse the oldest.
HEADERS = (("6.0", "sm_60"), ("6.3", "sm_75"), ("7.0", "sm_80"), ("7.8", "sm_90"), ("8.6", "sm_100"))
ENTRY = "pumice_spin_ns"  # the name by which an emulated card takes the duration from the first parameter

# A chain of dependent multiplications draws little power, so clocks stay where they are. Thread 0 of block 0 stamps when it
# began and ended; the sum is stored where no run ever gets, so that the loop is not optimised away.
CHAIN = """
.visible .entry pumice_spin_ns(.param .u64 ns, .param .u64 count, .param .u64 pointer)
{
    .reg .pred %more, %other, %never;
    .reg .u32 %thread, %block, %either;
    .reg .u64 %left, %sum, %out, %began, %ended;
    ld.param.u64 %left, [count];
    ld.param.u64 %out, [pointer];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    or.b32 %either, %thread, %block;
    cvt.u64.u32 %sum, %thread;
    mov.u64 %began, %globaltimer;
again:
    mad.lo.u64 %sum, %sum, 6364136223846793005, 1442695040888963407;
    sub.u64 %left, %left, 1;
    setp.ne.u64 %more, %left, 0;
    @%more bra again;
    mov.u64 %ended, %globaltimer;
    setp.eq.u64 %never, %sum, 42;
    @%never st.global.u64 [%out], %sum;
    setp.ne.u32 %other, %either, 0;
    @%other bra done;
    st.global.u64 [%out], %began;
    st.global.u64 [%out+8], %ended;
done:
    ret;
}
"""

# Reads memory from end to end, as the matrix-vector products of a decode step do.
READ = """
.visible .entry pumice_spin_ns(.param .u64 ns, .param .u64 count, .param .u64 pointer)
{
    .reg .pred %past, %never;
    .reg .u32 %thread, %threads, %block, %blocks;
    .reg .u64 %at, %stride, %words, %from, %where, %low, %high, %sum;
    ld.param.u64 %words, [count];
    ld.param.u64 %from, [pointer];
    mov.u32 %thread, %tid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mad.lo.u32 %thread, %block, %threads, %thread;
    mul.lo.u32 %blocks, %blocks, %threads;
    cvt.u64.u32 %at, %thread;
    cvt.u64.u32 %stride, %blocks;
    mov.u64 %sum, 0;
again:
    setp.ge.u64 %past, %at, %words;
    @%past bra done;
    shl.b64 %where, %at, 4;
    add.u64 %where, %from, %where;
    ld.global.v2.u64 {%low, %high}, [%where];
    xor.b64 %sum, %sum, %low;
    xor.b64 %sum, %sum, %high;
    add.u64 %at, %at, %stride;
    bra again;
done:
    setp.eq.u64 %never, %sum, 81985529216486895;
    @%never st.global.u64 [%from], %sum;
    ret;
}
"""
SCRATCH_BYTES = 4096
PROBE_ROUNDS = 1_000_000


def load(cuda: Cuda, text: str, entry: str = ENTRY) -> c_void_p:
    """The kernel of a PTX text, with the first header that this driver accepts."""
    refusals = []
    for version, target in HEADERS:
        module, function = c_void_p(), c_void_p()
        image = f".version {version}\n.target {target}\n.address_size 64\n{text}".encode() + b"\0"
        try:
            cuda("cuModuleLoadData", byref(module), image)
        except Failed as failed:
            refusals.append(f"{target}: {failed}")
            continue
        cuda("cuModuleGetFunction", byref(function), module, entry.encode())
        return function
    raise Failed("cuModuleLoadData", 218, "no PTX header accepted: " + "; ".join(refusals))


class Kernel:
    """One kernel and how much of it takes a microsecond on this card. ``rounds_per_us`` 0: not calibrated yet."""

    def __init__(self, cuda: Cuda, text: str = CHAIN, rounds_per_us: float = 0.0) -> None:
        self._cuda = cuda
        self._launch = cuda.function("cuLaunchKernel")
        self._cooperative = cuda.function("cuLaunchCooperativeKernel")
        self._function = load(cuda, text)
        self._values = (c_uint64(), c_uint64(), c_uint64())
        self._parameters = (c_void_p * 3)(*(ctypes.addressof(value) for value in self._values))
        self.grid = cuda.attribute(SM_COUNT)
        self.rounds_per_us = rounds_per_us
        self.scratch = cuda.allocate(SCRATCH_BYTES)

    def shape(self, ns: int, pointer: int = 0, count: int = 0) -> None:
        """The work of the next launches: about ``ns`` of work, or ``count`` rounds or words exactly."""
        self._values[0].value = ns
        self._values[1].value = count or max(1, round(ns * self.rounds_per_us / 1000))
        self._values[2].value = pointer or self.scratch

    def stamp_at(self, pointer: int) -> None:
        self._values[2].value = pointer

    def launch(self, stream: c_void_p | None) -> None:
        self._check("cuLaunchKernel", self._launch(*self._arguments(stream), None))

    def launch_cooperative(self, stream: c_void_p | None) -> None:
        self._check("cuLaunchCooperativeKernel", self._cooperative(*self._arguments(stream)))

    def _arguments(self, stream: c_void_p | None) -> tuple[object, ...]:
        # The parameters are read at the call, so the same three words serve every launch.
        return (self._function, self.grid, 1, 1, 128, 1, 1, 0, stream, self._parameters)

    def _check(self, call: str, code: int) -> None:
        if code:
            raise Failed(call, code, self._cuda.error_name(code))

    def calibrate(self) -> float:
        """Rounds that take a microsecond on the idle card: the shortest of seven timed runs. 1 on an emulated card."""
        if self._cuda.emulated:
            return 1.0
        begin, end = self._cuda.event(0), self._cuda.event(0)
        best = float("inf")
        for _ in range(7):
            self.shape(0, count=PROBE_ROUNDS)
            self._cuda("cuEventRecord", begin, None)
            self.launch(None)
            self._cuda("cuEventRecord", end, None)
            self._cuda("cuEventSynchronize", end)
            best = min(best, self._cuda.elapsed_ms(begin, end))
        self.rounds_per_us = PROBE_ROUNDS / (best * 1000)
        return self.rounds_per_us
