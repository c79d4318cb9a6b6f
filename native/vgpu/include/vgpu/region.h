/*
 * The shared region: one file per container, mapped by every process of the container and by the node's monitor.
 *
 * The first 2,008,952 bytes are layout 1.2 of the ecosystem (HAMi-core src/multiprocess/multiprocess_memory_limit.h); monitors of either
 * make read them. Behind it, on its own page, lies our extension, which nobody else sees. Everything here is little-endian LP64. Fields
 * that several processes touch are plain integers and are accessed only through the atomic helpers at the end of this file.
 */
#ifndef VGPU_REGION_H
#define VGPU_REGION_H

#include <stddef.h>
#include <stdint.h>

#define REGION_MAGIC 19920718 /* 0x012FF74E */
#define REGION_MAJOR 1u
#define REGION_MINOR 2u
#define REGION_DEVICES 16
#define REGION_SLOTS 1024
#define REGION_UUID_BYTES 96
#define REGION_SEM_BYTES 32

#define REGION_V1_BYTES 2008952ul      /* layouts 1.1 and 1.2 */
#define REGION_V1_BAD_B_BYTES 2008984ul /* a development layout of early 2026 under the name 1.1 */
#define REGION_V0_BYTES 1197896ul
#define REGION_EXT_OFFSET 2011136ul /* page 491 */
#define REGION_EXT_BYTES 331776ul
#define REGION_FILE_BYTES (REGION_EXT_OFFSET + REGION_EXT_BYTES)
#define REGION_SHARED_BYTES 131072ul /* behind it; files of an earlier version grow when somebody joins them */
#define REGION_FAIR_BYTES 262144ul
#define REGION_WHOLE_BYTES (REGION_FILE_BYTES + REGION_SHARED_BYTES + REGION_FAIR_BYTES)

#define EXT_MAGIC 0x31584756u /* "VGX1" */
#define EXT_VERSION 1u

enum slot_status { SLOT_FREE = 0, SLOT_RUNNING = 1, SLOT_SUSPENDED = 2 };
enum memory_type { MEMORY_CONTEXT = 0, MEMORY_MODULE = 1, MEMORY_DATA = 2, MEMORY_THAT_MOVES = 3 /* data, which may leave the card */ };

/* ---- layout 1.2 ---------------------------------------------------------------------------------------------- */

struct device_memory {
    uint64_t context_size;
    uint64_t module_size;
    uint64_t data_size;
    uint64_t offset; /* never written */
    uint64_t total;  /* the sum: limits and metrics use it */
    uint64_t unused[3];
};

struct device_util {
    uint64_t dec_util;
    uint64_t enc_util;
    uint64_t sm_util; /* percent */
    uint64_t unused[3];
};

struct region_slot {
    int32_t pid;     /* in the container's namespace; 0 = free */
    int32_t hostpid; /* as NVML reports it; 0 = unknown */
    struct device_memory used[REGION_DEVICES];
    uint64_t monitorused[REGION_DEVICES]; /* bytes by NVML */
    struct device_util device_util[REGION_DEVICES];
    int32_t status;
    int32_t pad;
    uint64_t seqlock;   /* even = stable; unused in layout 1.1 */
    uint64_t unused[2]; /* [0]: our start time in clock ticks, a hint whose loss is harmless */
};

struct region {
    int32_t initialized_flag; /* REGION_MAGIC, written last */
    uint32_t major_version;
    uint32_t minor_version;
    int32_t sm_init_flag;
    uint64_t owner_pid;
    unsigned char sem[REGION_SEM_BYTES]; /* glibc sem_t, kept posted for upstream processes; we never wait on it */
    uint64_t device_num;
    char uuids[REGION_DEVICES][REGION_UUID_BYTES];
    uint64_t limit[REGION_DEVICES];    /* bytes, 0 = unlimited */
    uint64_t sm_limit[REGION_DEVICES]; /* percent, 0 or >= 100 = unlimited */
    struct region_slot procs[REGION_SLOTS];
    int32_t proc_num; /* high-water mark of used slots */
    int32_t utilization_switch;
    int32_t recent_kernel; /* > 0 active, < 0 launches wait */
    int32_t priority;      /* 0 high, 1 low */
    uint64_t last_kernel_time;
    unsigned char sem_postinit[REGION_SEM_BYTES];
};

/* ---- our extension ------------------------------------------------------------------------------------------- */

/*
 * GPU time of one device. credit grows with the clock at the rate of the limit, charged grows with the work; a launch may
 * start once credit has passed what was charged before it. budget = credit - charged.
 */
struct ext_device {
    int64_t credit_ns;
    uint64_t last_refill_ns;
    uint32_t futex; /* reserved */
    uint32_t kappa_ppm;
    int64_t charged_ns;
    uint64_t busy_ns; /* measured, clean and contended */
    uint64_t throttled_ns;
    uint64_t launches;
    uint64_t samples;
    uint64_t probe_until_ns; /* a launch of unknown cost is being measured, at the latest until then */
    uint64_t context_bytes; /* what the last context took; 0: none was measured */
    uint32_t context_lock;  /* the lock of whoever makes the first one; core/region_lock.h */
    uint32_t pad;
    int64_t fair_ns; /* what each process has used at least that asks; policy/fair.h */
    uint64_t probe_ends_ns; /* when that launch is expected to be done; 0: it has not started */
    uint64_t reserved[3];
};

struct ext_pending { /* bytes being requested at this moment, HAMi-core src/allocator/allocator.c */
    uint64_t fast;
    uint64_t slow;
};

#define EXT_SLOT_ALIVE_LOCK 1u /* the owner holds the record lock of its slot for as long as it lives */
/*
 * The owner ends: monitors see an empty slot, but what it held is in pending until the process is gone, for only then the driver
 * frees it. left_pid says who it was.
 */
#define EXT_SLOT_LEAVING 2u

struct ext_slot {
    uint64_t heartbeat_ns;
    uint64_t start_time; /* clock ticks since boot, field 22 of /proc/PID/stat */
    uint64_t pid_namespace;
    uint32_t flags;
    int32_t left_pid;
    struct ext_pending pending[REGION_DEVICES];
    uint64_t busy_until_ns; /* when the work this process has queued is expected to be done */
    uint32_t busy_devices;  /* bit mask of the devices meant by busy_until_ns */
    uint32_t pad2;
    uint64_t program; /* where the owner's stack begins: an exec, which keeps pid and start time, moves it */
    uint64_t reserved[1];
};

/* Waits for any lock of the library, of all processes since the region was made, each from its beginning to its end. */
struct ext_waits {
    uint64_t longest_ns;
    uint64_t total_ns;
    uint64_t count;
    uint64_t late; /* waits that were given up after 50 ms */
};

enum { EXT_WARNINGS = 8 };

struct region_ext {
    uint32_t magic;
    uint32_t version;
    uint32_t bytes;
    uint32_t reserved;
    /*
     * The pulse of who lets launches wait (recent_kernel < 0): milliseconds between two beats << 32 | beats. 0: none is given, as by
     * upstream's monitors, and the word is waited for. Ours beat, so that nobody waits for a word of the dead.
     */
    uint64_t pulse;
    uint8_t pad0[40];
    uint8_t lock_bytes[16]; /* never written */
    uint32_t warned[EXT_WARNINGS]; /* what the container's configuration was last complained about, by subject; core/log.h */
    uint32_t memory_locks[REGION_DEVICES]; /* the lock of whoever decides about memory; core/region_lock.h */
    struct ext_waits waits;
    uint8_t pad1[48];
    struct ext_device devices[REGION_DEVICES];
    uint64_t made_limit[REGION_DEVICES]; /* the limits with which the region was made: another limit[] was set since */
    uint64_t made_sm_limit[REGION_DEVICES];
    uint8_t pad2[1536];
    struct ext_slot slots[REGION_SLOTS];
};

/*
 * Memory that several processes of the container hold, because one exported it and others imported it: the first holder pays, and
 * hands that on when it lets go. All zeros: nobody holds any. Under the lock, but for reading.
 */
enum { SHARED_ALLOCATIONS = 2047, SHARED_ALLOCATION_HOLDERS = 16, SHARED_ALLOCATION_EXPORTS = 256 /* descriptors of one shared allocation */ };

struct shared_allocation {
    uint64_t descriptors; /* bytes of the exported files from here on are locked by them: so one is known again; 0: there is none */
    uint64_t words;       /* of a handle that is passed on by its bytes: what they come to; 0: there is none */
    uint64_t bytes;
    int16_t device;
    uint16_t count;   /* of holders; 0: free */
    uint32_t exports; /* descriptors that were handed out */
    uint16_t holders[SHARED_ALLOCATION_HOLDERS]; /* slots, in the order in which they came */
};

struct region_shared_allocations {
    uint32_t lock; /* core/region_lock.h */
    uint32_t high; /* places ever used */
    uint8_t pad[56];
    struct shared_allocation shared_allocations[SHARED_ALLOCATIONS];
};

/* GPU time of each process, for who is next among those of the container. */
struct fair_use {
    int64_t used_ns;
    uint64_t asks_until_ns;
};

struct region_fair {
    struct fair_use uses[REGION_SLOTS][REGION_DEVICES];
};

/* Record locks: byte ranges of the file that are locked, never written. */
#define LOCK_ALIVE(slot) (REGION_EXT_OFFSET + 4096 + (uint64_t)(slot) * 320)
/* The range an upstream process locks while it creates or checks the region. */
#define LOCK_UPSTREAM_BYTES REGION_V1_BYTES

/* ---- the layouts byte by byte -------------------------------------------------------------------------------- */

#define AT(type, field, where) \
    _Static_assert(offsetof(struct type, field) == (where), #type "." #field " moved: other programs read it there")
#define SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), "size of " #type " changed")

AT(device_memory, context_size, 0);
AT(device_memory, module_size, 8);
AT(device_memory, data_size, 16);
AT(device_memory, offset, 24);
AT(device_memory, total, 32);
AT(device_memory, unused, 40);
SIZE(device_memory, 64);
AT(device_util, dec_util, 0);
AT(device_util, enc_util, 8);
AT(device_util, sm_util, 16);
AT(device_util, unused, 24);
SIZE(device_util, 48);
AT(region_slot, pid, 0);
AT(region_slot, hostpid, 4);
AT(region_slot, used, 8);
AT(region_slot, monitorused, 1032);
AT(region_slot, device_util, 1160);
AT(region_slot, status, 1928);
AT(region_slot, seqlock, 1936);
AT(region_slot, unused, 1944);
SIZE(region_slot, 1960);
AT(region, initialized_flag, 0);
AT(region, major_version, 4);
AT(region, minor_version, 8);
AT(region, sm_init_flag, 12);
AT(region, owner_pid, 16);
AT(region, sem, 24);
AT(region, device_num, 56);
AT(region, uuids, 64);
AT(region, limit, 1600);
AT(region, sm_limit, 1728);
AT(region, procs, 1856);
AT(region, proc_num, 2008896);
AT(region, utilization_switch, 2008900);
AT(region, recent_kernel, 2008904);
AT(region, priority, 2008908);
AT(region, last_kernel_time, 2008912);
AT(region, sem_postinit, 2008920);
SIZE(region, REGION_V1_BYTES);
SIZE(ext_device, 128);
AT(ext_slot, start_time, 8);
AT(ext_slot, pid_namespace, 16);
AT(ext_slot, flags, 24);
AT(ext_slot, left_pid, 28);
AT(ext_slot, pending, 32);
AT(ext_slot, busy_until_ns, 288);
SIZE(ext_slot, 320);
AT(region_ext, pulse, 16);
AT(region_ext, lock_bytes, 64);
AT(region_ext, warned, 80);
AT(region_ext, memory_locks, 112);
AT(region_ext, waits, 176);
AT(region_ext, devices, 256);
AT(region_ext, made_limit, 2304);
AT(region_ext, made_sm_limit, 2432);
AT(region_ext, slots, 4096);
SIZE(region_ext, REGION_EXT_BYTES);
SIZE(shared_allocation, 64);
SIZE(region_shared_allocations, REGION_SHARED_BYTES);
SIZE(region_fair, REGION_FAIR_BYTES);
_Static_assert(REGION_EXT_OFFSET % 4096 == 0 && REGION_FILE_BYTES % 4096 == 0 && REGION_EXT_OFFSET > REGION_V1_BYTES, "the extension has its own pages");

/* ---- access -------------------------------------------------------------------------------------------------- */

/* Of words that processes or threads share. Sequentially consistent, for the reservation protocol depends on it; peek, put and count are relaxed. */
#define shared_get(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define shared_peek(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define shared_put(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define shared_count(p, v) __atomic_fetch_add((p), (v), __ATOMIC_RELAXED)
#define shared_set(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define shared_add(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#define shared_sub(p, v) __atomic_fetch_sub((p), (v), __ATOMIC_SEQ_CST)
#define shared_swap_if(p, expected, v) \
    __atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

#endif
