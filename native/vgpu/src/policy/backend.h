/*
 * The one seam for what enforces the limits.
 *
 * Hooks ask here and nowhere else: before memory is taken, after it was given back, and at every launch for the share that this
 * library has to hold the launch to. The books of the region are the same whatever enforces, so monitors and the view of the
 * container (cuMemGetInfo, NVML) do not notice.
 *
 * Today there is one back end, "hook": reservations in the region and a budget of GPU time paid at launches. MPS needs none: on a node
 * that shares its cards by MPS containers get no library, for a server holds their programs to memory and threads (docs/adr/0078).
 * What may follow:
 *   the driver's cgroup  usable where dmem.max of the cgroup is at most the limit; reserve books and never refuses, because the
 *                        kernel does, and share stays the hook's.
 *
 * A back end is chosen once, when the process first uses the GPU: the first usable one of backend_list, whose file is
 * the only place that names them. Functions may be called by any thread at once and must neither block nor call the driver.
 */
#ifndef VGPU_BACKEND_H
#define VGPU_BACKEND_H

#include "core/config.h"
#include "policy/memory.h"

struct backend {
    const char *name;
    bool (*usable)(const struct region_map *map, const struct config *config);

    /* Compute: the percent of GPU time to which launches on the device are held by this library; 0: they pass. */
    uint64_t (*share)(const struct region_map *map, const struct config *config, int device);

    /* Memory: book and grant, or refuse and leave no trace; book without asking; give back. */
    enum grant (*reserve)(struct region_map *map, int device, enum memory_type type, uint64_t bytes);
    void (*charge)(struct region_map *map, int device, enum memory_type type, uint64_t bytes);
    void (*release)(struct region_map *map, int device, enum memory_type type, uint64_t bytes);
};

extern const struct backend backend_hook;
extern const struct backend *backend; /* never NULL */

/* In order of preference, ended by NULL. */
extern const struct backend *const backend_list[];

void backend_choose(const struct region_map *map, const struct config *config);

#endif
