#include "core/region_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

static void wake(uint32_t *turn, int count)
{
    syscall(SYS_futex, turn, FUTEX_WAKE, count, NULL, NULL, 0);
}

void region_lock_give(uint32_t *turn)
{
    if (__atomic_exchange_n(turn, 0, __ATOMIC_SEQ_CST) & TURN_WAITED_FOR)
        wake(turn, 1);
}

bool region_lock_take_from(uint32_t *turn, uint32_t owner, uint32_t next)
{
    uint32_t seen = shared_get(turn);
    while ((seen & TURN_OWNER) == owner)
        if (shared_swap_if(turn, &seen, next | (seen & TURN_WAITED_FOR)))
            return true;
    return false;
}

static void end_of(uint32_t *turn, int slot)
{
    if (region_lock_take_from(turn, (uint32_t)slot + 1, 0))
        wake(turn, 1);
}

void region_locks_end_of(struct region_map *map, int slot)
{
    for (int device = 0; device < REGION_DEVICES; device++) {
        end_of(&map->ext->turns[device], slot);
        end_of(&map->ext->devices[device].context_turn, slot);
    }
    if (map->shared_allocations != NULL)
        end_of(&map->shared_allocations->turn, slot);
}
