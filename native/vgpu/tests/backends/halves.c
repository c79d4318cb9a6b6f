/*
 * A second back end, for tests: it grants half of the memory limit and a quarter of the GPU's time, whatever the region says. It is
 * linked in place of services/backends.c, which shows that nothing else knows who enforces.
 */
#include "core/log.h"
#include "policy/backend.h"

static bool usable(const struct region_map *map, const struct config *config)
{
    (void)config;
    return map->shared;
}

static uint64_t share(const struct region_map *map, const struct config *config, int device)
{
    (void)map, (void)config, (void)device;
    return 25;
}

static enum grant reserve(struct region_map *map, int device, enum memory_type type, uint64_t bytes)
{
    if (bytes > memory_limit(map, device) / 2 || memory_used(map, device) + bytes > memory_limit(map, device) / 2)
        return REFUSED;
    memory_charge(map, device, type, bytes);
    return GRANTED;
}

static const struct backend halves = {"halves", usable, share, reserve, memory_charge, memory_release};

const struct backend *const backend_list[] = {&halves, &backend_hook, NULL};

void backend_choose(const struct region_map *map, const struct config *config)
{
    for (int i = 0; backend_list[i] != NULL; i++)
        if (backend_list[i]->usable(map, config)) {
            backend = backend_list[i];
            return;
        }
}
