#include "policy/gate.h"

#include "core/log.h"
#include "policy/clock.h"

#include <time.h>

#define POLL_NS 5000000ull
#define TELL_EVERY_NS 30000000000ull
#define ACTIVE_EVERY_NS 500000000ull
enum { ACTIVE = 2 };

static uint64_t active_told_ns, time_told_ns;

void gate_after_fork(void)
{
    active_told_ns = time_told_ns = 0;
}

void gate_wait(const struct region_map *map)
{
    uint64_t waited = 0;
    for (; gate_closed(map); waited += POLL_NS) {
        if (waited % TELL_EVERY_NS == 0 && waited > 0)
            log_info("launches wait: a container of higher priority uses the device");
        policy_clock.sleep(POLL_NS);
    }
}

/* True for one caller per interval. */
static bool due(uint64_t *told, uint64_t now, uint64_t interval)
{
    uint64_t last = __atomic_load_n(told, __ATOMIC_RELAXED);
    return (last == 0 || now - last >= interval) &&
           __atomic_compare_exchange_n(told, &last, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* By comparing first, so that the monitor's -1 of the same moment is not overwritten. */
static void tell_active(struct region *region)
{
    int32_t seen = shared_get(&region->recent_kernel);
    while (seen >= 0 && seen != ACTIVE && !shared_swap_if(&region->recent_kernel, &seen, ACTIVE))
        ;
}

static void tell_time(struct region *region)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t now = (uint64_t)wall.tv_sec, seen = shared_get(&region->last_kernel_time);
    while (seen < now && !shared_swap_if(&region->last_kernel_time, &seen, now))
        ;
}

void gate_record(const struct region_map *map, uint64_t record_interval_s, uint64_t now)
{
    if (due(&active_told_ns, now, ACTIVE_EVERY_NS))
        tell_active(map->region);
    if (due(&time_told_ns, now, record_interval_s * 1000000000ull))
        tell_time(map->region);
}
