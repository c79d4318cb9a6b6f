/*
 * A container that holds more device memory than it may, by NVML's measure and in spite of all refusals (HAMi-core src).
 *
 * Upstream parses ACTIVE_OOM_KILLER and never acts on it. Here it is off unless asked for, and then it takes more than a tenth
 * above the limit for five seconds until the process with the largest measured use goes, never the container's PID 1. Every process
 * comes to the same answer from the region, and the one that is meant ends itself: nobody signals a pid that it only read.
 */
#ifndef VGPU_OVERUSE_H
#define VGPU_OVERUSE_H

#include "core/region_map.h"

#define OVERUSE_PATIENCE_NS 5000000000ull

struct overuse {
    uint64_t since_ns; /* 0: within bounds */
    int slot;          /* the largest when it began */
    int32_t pid;
};

/* The slot of the process that has to go now, -1: nobody. */
int overuse_look(const struct region_map *map, int device, uint64_t now, struct overuse *state);

#endif
