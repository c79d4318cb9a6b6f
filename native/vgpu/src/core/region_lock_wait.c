#include "core/region_lock_wait.h"

#include "core/slots.h"
#include "core/region_lock.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 100 };
#define NAP_NS 1000000l /* a waker may have been killed between giving the turn and waking */

/* No cancellation point, and errno is the program's own: callers save it. */
static void sleep_on(uint32_t *turn, uint32_t seen)
{
    struct timespec span = {0, NAP_NS};
    syscall(SYS_futex, turn, FUTEX_WAIT, seen, &span, NULL, 0);
}

/*
 * While we hold the owner's slot nobody can own the slot anew, so what the word says is about the one that
 * stopped. A number that is no slot's is damage, and nobody's turn.
 */
static void end_turn_of_the_dead(struct region_map *map, uint32_t *turn, uint32_t owner)
{
    int slot = (int)owner - 1;
    if (slot >= REGION_SLOTS) {
        region_lock_take_from(turn, owner, 0);
    } else if (slot_hold(map, slot)) {
        if (slot_has_stopped(map, slot))
            region_lock_take_from(turn, owner, 0);
        slot_let_go(map, slot);
    }
}

static bool wait_for_turn(struct region_map *map, uint32_t *turn, struct wait *wait)
{
    uint32_t own = (uint32_t)map->slot + 1;
    do {
        uint32_t seen = shared_get(turn);
        if ((seen & TURN_OWNER) == 0) {
            if (shared_swap_if(turn, &seen, own | TURN_WAITED_FOR)) /* others may sleep still */
                return true;
            continue;
        }
        end_turn_of_the_dead(map, turn, seen & TURN_OWNER);
        if ((seen & TURN_WAITED_FOR) != 0 || shared_swap_if(turn, &seen, seen | TURN_WAITED_FOR))
            sleep_on(turn, seen | TURN_WAITED_FOR);
    } while (!wait_is_over(wait));
    return false;
}

bool region_lock_take(struct region_map *map, uint32_t *turn, struct wait *wait)
{
    uint32_t own = (uint32_t)map->slot + 1;
    for (int spin = 0; spin < SPINS; spin++) {
        uint32_t nobody = 0;
        if (shared_peek(turn) == 0 && shared_swap_if(turn, &nobody, own))
            return true;
    }
    if (wait->begun_ns == 0)
        *wait = wait_begin();
    return wait_for_turn(map, turn, wait);
}
