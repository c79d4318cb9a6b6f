#include "core/region_lock.h"

#include "core/slots.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 100 };
#define NAP_NS 1000000l /* a waker may have been killed between giving the lock and waking */

/* No cancellation point, and errno is the program's own: callers save it. */
static void sleep_on(uint32_t *lock, uint32_t seen)
{
    struct timespec span = {0, NAP_NS};
    syscall(SYS_futex, lock, FUTEX_WAIT, seen, &span, NULL, 0);
}

/*
 * While we hold the owner's slot nobody can own the slot anew, so what the word says is about the one that
 * stopped. A number that is no slot's is damage, and nobody's lock.
 */
static void end_lock_of_the_dead(struct region_map *map, uint32_t *lock, uint32_t owner)
{
    int slot = (int)owner - 1;
    if (slot >= REGION_SLOTS) {
        slot_lock_pass(lock, owner, 0);
    } else if (slot_hold(map, slot)) {
        if (slot_has_stopped(map, slot))
            slot_lock_pass(lock, owner, 0);
        slot_let_go(map, slot);
    }
}

static bool wait_for_lock(struct region_map *map, uint32_t *lock, struct wait *wait)
{
    uint32_t own = (uint32_t)map->slot + 1;
    do {
        uint32_t seen = shared_get(lock);
        if ((seen & LOCK_OWNER) == 0) {
            if (shared_swap_if(lock, &seen, own | LOCK_WAITED_FOR)) /* others may sleep still */
                return true;
            continue;
        }
        end_lock_of_the_dead(map, lock, seen & LOCK_OWNER);
        if ((seen & LOCK_WAITED_FOR) != 0 || shared_swap_if(lock, &seen, seen | LOCK_WAITED_FOR))
            sleep_on(lock, seen | LOCK_WAITED_FOR);
    } while (!wait_is_over(wait));
    return false;
}

bool region_lock_take(struct region_map *map, uint32_t *lock, struct wait *wait)
{
    uint32_t own = (uint32_t)map->slot + 1;
    for (int spin = 0; spin < SPINS; spin++) {
        uint32_t nobody = 0;
        if (shared_peek(lock) == 0 && shared_swap_if(lock, &nobody, own))
            return true;
    }
    if (wait->begun_ns == 0)
        *wait = wait_begin();
    return wait_for_lock(map, lock, wait);
}

void region_lock_give(uint32_t *lock)
{
    if (__atomic_exchange_n(lock, 0, __ATOMIC_SEQ_CST) & LOCK_WAITED_FOR)
        syscall(SYS_futex, lock, FUTEX_WAKE, 1, NULL, NULL, 0);
}
