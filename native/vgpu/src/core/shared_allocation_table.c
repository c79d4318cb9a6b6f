#include "core/shared_allocation_table.h"

uint32_t shared_allocations_places(const struct region_map *map)
{
    uint32_t high = shared_get(&map->shared_allocations->high);
    return high < SHARED_ALLOCATIONS ? high : SHARED_ALLOCATIONS;
}

struct shared_allocation *shared_allocation_at(struct region_map *map, uint32_t place)
{
    struct shared_allocation *shared_allocation = &map->shared_allocations->shared_allocations[place];
    bool sound = shared_allocation->count > 0 && shared_allocation->count <= SHARED_ALLOCATION_HOLDERS && shared_allocation->device >= 0 && shared_allocation->device < REGION_DEVICES;
    for (int i = 0; sound && i < shared_allocation->count; i++)
        sound = shared_allocation->holders[i] < REGION_SLOTS;
    return sound ? shared_allocation : NULL;
}

int shared_allocation_place_of(const struct shared_allocation *shared_allocation, int slot)
{
    for (int i = 0; i < shared_allocation->count; i++)
        if (shared_allocation->holders[i] == slot)
            return i;
    return -1;
}

bool shared_allocations_hold(struct region_map *map, int slot)
{
    if (map->shared_allocations == NULL)
        return false;
    for (uint32_t place = 0, high = shared_allocations_places(map); place < high; place++) {
        const struct shared_allocation *shared_allocation = shared_allocation_at(map, place);
        if (shared_allocation != NULL && shared_allocation_place_of(shared_allocation, slot) >= 0)
            return true;
    }
    return false;
}
