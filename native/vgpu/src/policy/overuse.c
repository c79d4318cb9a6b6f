#include "policy/overuse.h"

#include "core/numbers.h"
#include "core/slots.h"
#include "policy/memory.h"

static bool beyond_bounds(uint64_t held, uint64_t limit)
{
    return limit != 0 && held > limit && held - limit > limit / 10;
}

int overuse_look(const struct region_map *map, int device, uint64_t now, struct overuse *state)
{
    uint64_t held = 0, most = 0;
    int largest = -1;
    for (int slot = 0, count = slots_in_use(map); slot < count; slot++) {
        const struct region_slot *process = &map->region->procs[slot];
        uint64_t bytes = shared_get(&process->monitorused[device]);
        held = add_u64(held, bytes);
        if (bytes > most && shared_get(&process->pid) > 1) {
            most = bytes;
            largest = slot;
        }
    }
    if (!beyond_bounds(held, memory_most(map, device)) || largest < 0) {
        state->since_ns = 0;
        return -1;
    }
    bool another = shared_get(&map->region->procs[state->slot].pid) != state->pid;
    if (state->since_ns == 0 || another) /* the next one has its five seconds too */
        *state = (struct overuse){.since_ns = now, .slot = largest, .pid = shared_get(&map->region->procs[largest].pid)};
    return now - state->since_ns >= OVERUSE_PATIENCE_NS ? largest : -1;
}
