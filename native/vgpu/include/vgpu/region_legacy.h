/*
 * Older layouts of the shared region, as read-only knowledge: we never write them.
 *
 * Layout 0 (2024-04 to 2024-08) is known by its exact file size, one byte more than the structure.
 * Layout 1.1 (2024-08 to 2026-02) has the offsets of 1.2; only the sequence lock and the second semaphore have no meaning in it.
 */
#ifndef VGPU_REGION_LEGACY_H
#define VGPU_REGION_LEGACY_H

#include "vgpu/region.h"

struct v0_device_memory {
    uint64_t context_size, module_size, data_size, offset, total;
};

struct v0_device_util {
    uint64_t dec_util, enc_util, sm_util;
};

struct v0_slot {
    int32_t pid, hostpid;
    struct v0_device_memory used[REGION_DEVICES];
    uint64_t monitorused[REGION_DEVICES];
    struct v0_device_util device_util[REGION_DEVICES];
    int32_t status, pad;
};

struct v0_region {
    int32_t initialized_flag, sm_init_flag;
    uint64_t owner_pid;
    unsigned char sem[REGION_SEM_BYTES];
    uint64_t device_num;
    char uuids[REGION_DEVICES][REGION_UUID_BYTES];
    uint64_t limit[REGION_DEVICES];
    uint64_t sm_limit[REGION_DEVICES];
    struct v0_slot procs[REGION_SLOTS];
    int32_t proc_num, utilization_switch, recent_kernel, priority;
};

AT(v0_slot, used, 8);
AT(v0_slot, monitorused, 648);
AT(v0_slot, device_util, 776);
AT(v0_slot, status, 1160);
SIZE(v0_slot, 1168);
AT(v0_region, owner_pid, 8);
AT(v0_region, sem, 16);
AT(v0_region, device_num, 48);
AT(v0_region, uuids, 56);
AT(v0_region, limit, 1592);
AT(v0_region, sm_limit, 1720);
AT(v0_region, procs, 1848);
AT(v0_region, proc_num, 1197880);
AT(v0_region, utilization_switch, 1197884);
AT(v0_region, recent_kernel, 1197888);
AT(v0_region, priority, 1197892);
SIZE(v0_region, REGION_V0_BYTES);

#endif
