/* The shared state of one emulated machine: the layout of DIR/state.
 *
 * One file, mapped by every process of the machine: by libnvidia-ml.so.1 and libcuda.so.1 (this directory) and by the
 * Python side, which creates it. Plain data of fixed size: little-endian, LP64, natural alignment, no pointers. Python
 * mirrors it with ctypes; sizes and offsets are asserted on both sides. Change anything: raise MACHINE_VERSION.
 *
 * Who writes what
 *   creator    fills a temporary file of MACHINE_SIZE bytes (sparse: zeros need not be written), sets `magic` last and
 *              renames it to DIR/state. Leaves everything below marked [C] zero; the libraries initialise it at first use.
 *   control    (`pumice machine set`, tests) may store at any time the fields marked [ctl]; each is one aligned word. Changes of more
 *              than one word (a fault, an Xid) are made through pumice_machine_* (machine/machine.h) or under
 *              flock(LOCK_EX) on DIR/state.
 *   libraries  everything else, under the lock named at the field, or atomically.
 *
 * Kernels
 *   The machine does not run code; a kernel is a name and a duration. A module image (cuModuleLoadData and its kin) is text:
 *     pumice-kernel name=NAME ns=N [regs=R] [smem=BYTES] [code=BYTES]     one line per kernel; N is the time of one launch,
 *                                        code the memory that it takes when it is loaded (4096)
 *     pumice-global name=NAME bytes=N                        a global variable
 *   or PTX: each `.entry NAME(...)` is a kernel (duration `kernel_ns` of the machine) and each `.global` a variable. Four names are
 *   special in PTX and text alike: `pumice_spin_ns` takes its duration from the first parameter (a 64-bit number of
 *   nanoseconds); a name that ends in _<N>ns, _<N>us or _<N>ms lasts that long; `pumice_block_ns` takes its first parameter
 *   as the time of one block and multiplies it by ceil(blocks / SMs); one that ends in 11spin_kernelEl, as PyTorch's torch.cuda._sleep,
 *   takes it as cycles of the card's highest clock. Of a cubin, and of the part of a fat binary that fits the
 *   card, names, registers, parameters and variables are read; a compressed part has any kernel one asks for. Their duration
 *   too comes from the name, else it is `kernel_ns`.
 *
 * Time
 *   machine now = CLOCK_MONOTONIC in real mode, `clock.virtual_ns` in virtual mode (advanced when every participant waits).
 *   One lane of a card (the whole card, or one GPU instance) serves one process at a time, round robin by `slice_ns`; a
 *   process is served while submitted_ns > served_ns. Nobody has to run for time to pass: whoever looks brings the lane up to now.
 */
#ifndef PUMICE_MACHINE_STATE_H
#define PUMICE_MACHINE_STATE_H

#include <stddef.h>
#include <stdint.h>

#define MACHINE_MAGIC 0x31454e494843414dull /* "MACHINE1" in memory */
#define MACHINE_VERSION 4u

#define MACHINE_CARDS 16
#define MACHINE_PROCESSES 256
#define MACHINE_PROFILES 24   /* GPU instance profiles of one card */
#define MACHINE_PLACEMENTS 8  /* placements of one profile */
#define MACHINE_INSTANCES 8   /* GPU instances of a card; compute instances of a GPU instance */
#define MACHINE_LANES 9       /* 0: the whole card; 1 + i: the GPU instance in slot i */
#define MACHINE_LINKS 18      /* NVLinks of a card */
#define MACHINE_FAULTS 64
#define MACHINE_XIDS 64       /* ring of Xid events */
#define MACHINE_HISTORY 256   /* ring of ended processes */
#define MACHINE_PARTICIPANTS 1024
#define MACHINE_SHARES 512    /* pieces of memory that several processes hold */
#define MACHINE_HOLDERS 32    /* of one piece */
#define MACHINE_MARKS 256     /* pending timing marks (events) of one process on one card */
#define MACHINE_BUCKETS 16    /* ring of MACHINE_BUCKET_NS windows of busy time */
#define MACHINE_BUCKET_NS 100000000ull

#define MACHINE_NONE 0xffffffffu /* no card, no GPU instance, no value */

enum machine_time_mode { MACHINE_TIME_REAL = 0, MACHINE_TIME_VIRTUAL = 1 };

/* A lock that outlives its holder: room for a process-shared robust pthread mutex, made by the libraries. [C] */
struct machine_lock {
    uint64_t opaque[8];
};

/* ---- cards ---- */

struct machine_placement {
    uint32_t start; /* memory slice */
    uint32_t size;  /* memory slices */
};

/* One GPU instance profile, as nvmlDeviceGetGpuInstanceProfileInfo reports it. Filled by the creator from the data file. */
struct machine_profile {
    char name[32];        /* "1g.5gb", "1g.10gb+me" (without "MIG ") */
    uint32_t number;      /* NVML_GPU_INSTANCE_PROFILE_*: 0 1_SLICE, 1 2_SLICE, 2 3_SLICE, 3 4_SLICE, 4 7_SLICE, 7 1_SLICE_REV1 (+me), 9 1_SLICE_REV2 … */
    uint32_t id;          /* the id NVML reports and creates by: 19 for 1g.5gb, 14, 9, 5, 0 … */
    uint32_t slices;      /* compute slices */
    uint32_t max_count;   /* instances of this profile that fit an empty card */
    uint64_t memory_mib;
    uint32_t sm_count;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg;
    uint32_t ofa;
    uint32_t p2p;
    uint32_t placement_count;
    struct machine_placement placements[MACHINE_PLACEMENTS];
};

/* [C] under the card's lock. `used` is stored last on creation and first on destruction. */
struct machine_compute_instance {
    uint32_t used;
    uint32_t id;          /* unique in its GPU instance */
    uint32_t slices;
    uint32_t start;       /* first compute slice inside the GPU instance */
    uint32_t profile;     /* NVML_COMPUTE_INSTANCE_PROFILE_*: 0 1_SLICE, 1 2, 2 3, 3 4, 4 7 … */
    uint32_t reserved;
    uint64_t generation;  /* tells a handle to a destroyed instance from its successor */
    char uuid[48];        /* "MIG-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
};

struct machine_gpu_instance {
    uint32_t used;
    uint32_t id;          /* as NVML numbers: larger profiles first */
    uint32_t profile;     /* index into card.profiles */
    uint32_t start;       /* placement */
    uint32_t size;
    uint32_t reserved;
    uint64_t generation;
    struct machine_compute_instance compute[MACHINE_INSTANCES];
};

/* The work that runs at one moment on the whole card or on one GPU instance. [C] under the card's lock. */
struct machine_lane {
    uint64_t now_ns;         /* served up to this moment */
    uint64_t used_bytes;     /* sum over processes; rebuilt from their accounts after a holder died */
    uint64_t busy_ns;        /* total */
    uint64_t slice_left_ns;
    uint32_t current;        /* process slot being served, or MACHINE_NONE */
    uint32_t started;        /* 0: now_ns is not set yet */
    uint64_t bucket_epoch;   /* number of the newest bucket */
    uint64_t bucket_busy_ns[MACHINE_BUCKETS];
};

struct machine_link {
    uint32_t remote_card;    /* card index, or MACHINE_NONE: a switch or nothing */
    uint32_t version;        /* NVLink generation; 0: no such link */
    uint32_t up;             /* [ctl] */
    uint32_t remote_link;
};

struct machine_card {
    char name[96];           /* as NVML names it: "NVIDIA A100-SXM4-40GB" */
    char uuid[48];           /* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
    char bus_id[32];         /* "00000000:07:00.0" */
    char serial[32];
    char vbios[32];
    char part_number[32];
    char cpu_affinity[64];   /* CPU list, "0-31"; empty: unknown */
    uint32_t pci_domain, pci_bus, pci_device, pci_device_id, pci_subsystem_id;
    uint32_t minor;          /* /dev/nvidiaN */
    int32_t numa_node;       /* -1: none */
    uint32_t brand;          /* nvmlBrandType_t */
    uint64_t memory_bytes;   /* total */
    uint64_t reserved_bytes; /* held by the driver; part of `used` in v1 memory info, apart in v2 */
    uint64_t bar1_bytes;
    uint64_t context_bytes;  /* charged for each context a process makes */
    uint64_t stranger_bytes; /* [ctl] memory in use by nobody we know */
    uint32_t sm_count, threads_per_sm, warp_size, l2_bytes;
    uint32_t shared_per_block, shared_per_sm, regs_per_sm, memory_bus_bits;
    uint32_t cc_major, cc_minor;
    uint32_t architecture;   /* nvmlDeviceArchitecture_t: 5 Volta, 6 Turing, 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell */
    uint32_t clock_sm_mhz, clock_mem_mhz, clock_sm_max_mhz, clock_mem_max_mhz;
    uint32_t power_idle_mw, power_max_mw, power_limit_mw;  /* limit: [ctl] */
    uint32_t temperature_c;  /* [ctl] when idle; load adds to it */
    uint32_t fan_percent;    /* MACHINE_NONE: no fan */
    uint32_t persistence;    /* [ctl] */
    uint32_t compute_mode;   /* [ctl] nvmlComputeMode_t */
    uint32_t ecc_capable, ecc_mode; /* mode: [ctl] */
    uint64_t ecc_corrected, ecc_uncorrected; /* [ctl] */
    uint32_t pcie_generation, pcie_width;
    uint64_t peak_bytes;     /* [ctl] the most that lane 0 has held at once since somebody put it to 0 */
    uint32_t settings_reserved[4];
    uint32_t link_count;
    uint32_t lost;           /* [ctl] 1: the card fell off the bus */
    uint32_t ipc_capable, managed_capable, pool_capable, vmm_capable; /* 1 unless the model says otherwise; managed 2: without page faults */
    struct machine_link links[MACHINE_LINKS];
    uint32_t topology[MACHINE_CARDS]; /* nvmlGpuTopologyLevel_t to each card: 0 internal, 10 single, 20 multiple, 30 hostbridge, 40 node, 50 system */

    uint32_t mig_capable;
    uint32_t mig_mode;       /* current */
    uint32_t mig_pending;
    uint32_t mig_needs_reset;/* 1: a mode change waits for a reset (Ampere); 0: takes effect at once when idle */
    uint32_t mig_slices;     /* memory slices of the card: 8, or 4 (A30) */
    uint32_t mig_compute_slices; /* 7, or 4 */
    uint32_t profile_count;
    uint32_t mig_reserved;
    struct machine_profile profiles[MACHINE_PROFILES];

    struct machine_lock lock;            /* [C] */
    uint64_t generation;                 /* [C] last instance generation given out */
    struct machine_gpu_instance instances[MACHINE_INSTANCES]; /* [C], or preset by the creator */
    struct machine_lane lanes[MACHINE_LANES];                 /* [C] */
};

/* ---- processes: the independent witness ---- */

/* The account of one process on one card. [C]
 * Memory and served time: under the card's lock. submitted_ns and launches: atomic additions of the process itself. */
struct machine_account {
    uint64_t bytes;          /* physical device memory now: contexts + blocks of 2 MiB */
    uint64_t peak_bytes;
    uint64_t requested_bytes;/* sum of the sizes asked for and not yet freed */
    uint64_t context_bytes;  /* the contexts' part of bytes */
    uint64_t managed_bytes;  /* the part of bytes that gives way: managed memory on the card */
    uint64_t host_bytes;     /* managed memory that has given way, and is no part of bytes */
    uint64_t allocations;    /* live */
    uint64_t submitted_ns;   /* work given, since start */
    uint64_t served_ns;      /* work done: the busy time of this process */
    uint64_t launches;
    uint64_t copies_bytes;
    uint32_t contexts;       /* live */
    uint32_t lane;           /* 0, or 1 + slot of the GPU instance */
    uint32_t gi_id, ci_id;   /* NVML ids, or MACHINE_NONE */
    uint32_t mark_head, mark_tail; /* ring of marks: pending are tail..head-1 */
    uint32_t mps_server;     /* pid of the MPS server whose client the process is; 0: of none */
    uint32_t mps_percent;    /* the portion of threads, 1..99; 0: all */
    uint64_t mps_limit_bytes;/* 0: no limit */
    uint64_t rest_until_ns;  /* by mps_percent: machine time before which nothing of it is served */
    uint64_t bucket_epoch;
    uint64_t bucket_busy_ns[MACHINE_BUCKETS];
};

struct machine_process {
    uint32_t state;          /* atomic: 0 free, 1 claimed, 2 live */
    uint32_t pid;            /* in the namespace of pid_namespace; what NVML reports */
    uint64_t start_ticks;    /* field 22 of /proc/PID/stat: tells a reused pid */
    uint64_t pid_namespace;  /* inode of /proc/self/ns/pid */
    uint64_t attached_ns;    /* machine time */
    uint64_t generation;
    char name[64];           /* comm or argv[0], for NVML's process name */
    struct machine_account accounts[MACHINE_CARDS];
};

/* A point of a process's work whose moment somebody wants to know. [C] under the card's lock. */
struct machine_mark {
    uint64_t position_ns;    /* on the axis of submitted_ns/served_ns */
    uint64_t time_ns;        /* machine time when served_ns reached it; 0: not yet */
};

/* Memory that was exported, and who holds it: the first of them pays. [C] under the machine's lock. */
struct machine_share {
    uint64_t id;             /* tells it from an earlier one in the same place */
    uint64_t bytes;
    uint32_t card;
    uint32_t holders;        /* 0: free */
    uint16_t slots[MACHINE_HOLDERS]; /* of processes, in the order in which they came; one may be there twice */
};

struct machine_summary {
    uint64_t peak_bytes;
    uint64_t leaked_bytes;   /* requested and not freed at the end */
    uint64_t busy_ns;
    uint64_t submitted_ns;
    uint64_t launches;
    uint64_t reserved;
};

/* A process that ended, by its own exit or found dead. */
struct machine_past {
    uint64_t sequence;       /* 1.. ; 0: never used; entry = (sequence - 1) % MACHINE_HISTORY */
    uint32_t pid;
    uint32_t killed;         /* 0: it detached at exit; 1: found dead */
    uint64_t start_ticks;
    uint64_t ended_ns;
    char name[64];
    struct machine_summary cards[MACHINE_CARDS];
};

/* ---- time ---- */

/* A thread that takes part in virtual time. [C] under clock.lock. */
struct machine_participant {
    uint32_t pid;            /* 0: free */
    uint32_t tid;
    uint64_t start_ticks;
    uint64_t pid_namespace;
    uint64_t deadline_ns;    /* while waiting; UINT64_MAX: until somebody wakes it */
    uint32_t joined;         /* 0: present only for the length of one wait */
    uint32_t waiting;
};

struct machine_clock {
    uint32_t mode;           /* enum machine_time_mode; fixed at creation */
    uint32_t tick;           /* [C] futex: changes whenever virtual time moves */
    uint64_t virtual_ns;     /* start value by the creator (any), then [C] */
    struct machine_lock lock;
    uint32_t participant_high;
    uint32_t reserved;
    struct machine_participant participants[MACHINE_PARTICIPANTS];
};

/* ---- faults and events ---- */

/* An injected fault: calls of `function` number first..first+count-1 (counted over the machine from the moment of
 * injection) wait delay_ns of machine time and, if code is not 0, return it without doing anything. */
struct machine_fault {
    uint32_t used;           /* stored last when set, first when cleared */
    int32_t code;            /* CUresult or nvmlReturn_t; 0: only delay */
    uint64_t first;          /* 1: the next call */
    uint64_t count;          /* 0: for ever */
    uint64_t delay_ns;
    uint64_t calls;          /* atomic: calls seen */
    uint64_t hits;           /* atomic: calls answered so */
    uint32_t card;           /* reserved: MACHINE_NONE */
    uint32_t crash;          /* 1: kill the calling process (SIGKILL) instead of answering */
    char function[64];       /* "cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"; without suffix: every version of it */
};

struct machine_xid {
    uint64_t sequence;       /* 1..; entry = (sequence - 1) % MACHINE_XIDS; stored last */
    uint64_t time_ns;
    uint64_t xid;
    uint64_t event_type;     /* nvmlEventType bits; 8 = XidCriticalError */
    uint32_t card;
    uint32_t gi_id, ci_id;   /* MACHINE_NONE */
    uint32_t reserved;
};

struct machine_state {
    uint64_t magic;
    uint32_t version;
    uint32_t cards;          /* how many */
    uint64_t size;           /* sizeof(struct machine_state) */
    char driver_version[32]; /* "535.104.05" */
    char nvml_version[32];   /* "12.535.104.05" */
    uint32_t cuda_version;   /* 12020: 1000 major + 10 minor */
    uint32_t locks_ready;    /* [C] 0, 1 when the locks are made */
    char hostname[64];
    uint64_t boot_id[2];     /* [C] */

    uint64_t slice_ns;       /* time slice of a lane; 0: 2,000,000 */
    uint64_t kernel_ns;      /* a kernel that says nothing about its length; 0: 5,000 */
    uint64_t copy_bytes_per_us; /* speed of copies between host and device; 0: copies take no time */
    uint32_t queue_depth;    /* launches in flight before a launch waits; 0: 1024 */
    uint32_t overlap;        /* [ctl] 0: a kernel fills its lane; 1: kernels of different streams of a process overlap */
    uint32_t require_root;   /* 1: settings (MIG, modes) need uid 0, else NO_PERMISSION */
    uint32_t pid_mode;       /* [ctl] what NVML shows: 0 every process by pid, 1 only those of the caller's pid namespace, 2 none */
    uint64_t settings_reserved[4];

    uint32_t fault_count;    /* [ctl] non-zero: look into faults (0 keeps calls fast) */
    uint32_t faults_reserved;
    uint64_t xid_sequence;   /* newest; atomic */
    uint32_t xid_futex;      /* [C] changes with each event */
    uint32_t process_high;   /* [C] slots ever used: scan no further */
    uint64_t history_sequence; /* newest */
    uint64_t process_generation;
    struct machine_lock lock;  /* [C] process slots, history, faults, Xid ring */

    struct machine_clock clock;
    struct machine_fault faults[MACHINE_FAULTS];
    struct machine_xid xids[MACHINE_XIDS];
    struct machine_card card[MACHINE_CARDS];
    struct machine_past history[MACHINE_HISTORY];
    struct machine_process processes[MACHINE_PROCESSES];
    uint64_t share_ids;        /* newest */
    struct machine_share shares[MACHINE_SHARES];
    struct machine_mark marks[MACHINE_PROCESSES][MACHINE_CARDS][MACHINE_MARKS]; /* last: sparse and large */
};

#define MACHINE_SIZE sizeof(struct machine_state)

#endif
