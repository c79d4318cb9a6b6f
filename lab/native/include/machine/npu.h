/* The shared state of one emulated machine's NPUs: the layout of DIR/npus, beside DIR/state, which holds its graphics cards.
 *
 * One file, mapped by libdcmi.so and libascendcl.so of this machine and by the Python side, which creates it (as state.h tells:
 * a temporary file, `magic` last, one rename). Little-endian, LP64, natural alignment, no pointers; Python mirrors it with
 * ctypes. Change anything: raise NPU_VERSION. Facts of the driver come from Volcano pkg/scheduler/api/devices/ascend/hami,
 * appendices A to C.
 *
 * Whoever changes more than one word holds flock(LOCK_EX) on the file, which the kernel takes back from the dead. A slice is
 * there when its `used` is set, which is stored last; so a killed process leaves whole slices or none.
 */
#ifndef PUMICE_MACHINE_NPU_H
#define PUMICE_MACHINE_NPU_H

#include <stdint.h>

#define NPU_MAGIC 0x315355504e554e50ull
#define NPU_VERSION 1u

#define NPU_CHIPS 16
#define NPU_TEMPLATES 16
#define NPU_SLICES 16 /* of one chip */
#define NPU_PROCESSES 64
#define NPU_ERRORS 8
#define NPU_FAULTS 16
#define NPU_FREE 0xffffffffffffull /* the container id of a slice that nobody has opened */
#define NPU_ANY 0xffffffffu        /* "choose": of a slice's id and of its group */

enum npu_unit { NPU_JPEGD, NPU_JPEGE, NPU_VPC, NPU_VDEC, NPU_PNGD, NPU_VENC, NPU_UNITS };

/* The units of a slice, or of the whole chip. A chip without a number of a unit does not count it. */
struct npu_size {
    uint32_t cores;
    uint32_t cpus;
    uint64_t memory_mib;
    uint32_t media[NPU_UNITS];
};

struct npu_template {
    char name[32];
    struct npu_size size;
};

struct npu_slice {
    uint32_t used;
    uint32_t id;       /* 100 + 16 × physical id + k (MindCluster ascend-device-plugin) */
    uint32_t template; /* index into the chip's templates */
    uint32_t group;
    uint64_t container; /* 48 bits of the container that has it; NPU_FREE: none yet, 0: it has ended */
    uint64_t generation;
    uint64_t busy_until_ns; /* CLOCK_MONOTONIC at which all that was launched on it is done */
    uint64_t busy_ns;
};

struct npu_process {
    uint32_t pid; /* 0: the row is free */
    uint32_t slice; /* id, or 0 for the whole chip */
    uint64_t start_ticks;
    uint64_t bytes;
};

struct npu_chip {
    char name[32];    /* as the driver reports it: 310P3, 910B4-1 */
    char product[32]; /* what npu-smi shows */
    char bus_id[32];
    uint32_t die[6]; /* five words of the virtual die id */
    uint32_t card;
    uint32_t device;
    uint32_t physical;
    uint32_t groups; /* vGroups; 0: the chip has none */
    uint32_t slices_most;
    uint32_t hbm; /* its memory is HBM */
    uint32_t health; /* [ctl] 0 OK, 1 warning, 2 error, 3 critical */
    uint32_t gone;   /* [ctl] it fell off the bus */
    uint32_t share;  /* soft sharing is switched on (main command 0x8001) */
    uint32_t error_count; /* [ctl] */
    uint32_t errors[NPU_ERRORS];
    uint32_t power_dw;
    uint32_t temperature;
    struct npu_size size;
    uint32_t template_count;
    uint32_t grouped; /* slices of several cores want vGroups that are free (Volcano pkg/scheduler/api/devices/ascend/mindcluster) */
    uint64_t generation;
    uint64_t busy_until_ns;
    uint64_t busy_ns;
    struct npu_template templates[NPU_TEMPLATES];
    struct npu_slice slices[NPU_SLICES];
    struct npu_process processes[NPU_PROCESSES];
};

/* Calls number `first`.. of a function (`count` of them, 0: for ever) answer `code`; or kill the caller, 1 before anything was
 * done, 2 when all was. */
struct npu_fault {
    char function[64];
    uint32_t used;
    int32_t code;
    uint64_t first;
    uint64_t count;
    uint64_t calls;
    uint32_t crash;
    uint32_t reserved;
};

struct npu_state {
    uint64_t magic;
    uint32_t version;
    uint32_t chip_count;
    uint64_t size;
    char driver_version[32];
    struct npu_fault faults[NPU_FAULTS];
    struct npu_chip chips[NPU_CHIPS];
};

#endif
