/* Memory of a card or of an instance. */
#define _GNU_SOURCE
#include "nvml.h"

struct figures { uint64_t total, reserved, used; };

/* A process that was killed no longer holds anything; the driver knows at once, we look. */
static struct figures figures_of(struct target t)
{
    process_reap(false);
    const struct machine_card *c = card_at(t.card);
    struct figures f = {c->memory_bytes, c->reserved_bytes, RELAXED(&c->stranger_bytes)};
    if (t.gi >= 0) {
        f.total = memory_capacity(t.card, (unsigned)t.gi + 1);
        f.reserved = 0;
        f.used = memory_used(t.card, (unsigned)t.gi + 1);
    } else {
        for (unsigned lane = 0; lane < MACHINE_LANES; lane++)
            f.used += memory_used(t.card, lane);
    }
    if (f.reserved > f.total)
        f.reserved = f.total;
    if (f.used > f.total - f.reserved)
        f.used = f.total - f.reserved;
    return f;
}

/* The first version counts what the driver holds as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    DEVICE(nvmlDeviceGetMemoryInfo, device);
    NEED(memory);
    struct figures f = figures_of(t);
    *memory = (nvmlMemory_t){f.total, f.total - f.reserved - f.used, f.used + f.reserved};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    DEVICE(nvmlDeviceGetMemoryInfo_v2, device);
    NEED(memory);
    if (memory->version != NVML_VERSION(nvmlMemory_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    struct figures f = figures_of(t);
    memory->total = f.total;
    memory->reserved = f.reserved;
    memory->used = f.used;
    memory->free = f.total - f.reserved - f.used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    DEVICE(nvmlDeviceGetBAR1MemoryInfo, device);
    NEED(memory);
    uint64_t used = c->bar1_bytes < 2 * MIB ? c->bar1_bytes : 2 * MIB;
    *memory = (nvmlBAR1Memory_t){c->bar1_bytes, c->bar1_bytes - used, used};
    return NVML_SUCCESS;
}
