#include "policy/gate.h"

#include "core/after_fork.h"
#include "core/log.h"
#include "core/numbers.h"
#include "policy/clock.h"

#include <time.h>

#define POLL_NS 5000000ull
#define TELL_EVERY_NS 30000000000ull
#define ACTIVE_EVERY_NS 500000000ull
#define SHORTEST_BEAT_MS 100u
#define LONGEST_BEAT_MS 60000u
enum { ACTIVE = 2, BEATS_MISSED = 4 };

static uint64_t active_told_ns, time_told_ns;
FORGET_IN_CHILD(active_told_ns);
FORGET_IN_CHILD(time_told_ns);

static bool is_lost(uint64_t since_ns, uint64_t beat_ms, uint64_t now)
{
    return now - since_ns > BEATS_MISSED * clamp_u64(beat_ms, SHORTEST_BEAT_MS, LONGEST_BEAT_MS) * 1000000;
}

struct listening {
    uint64_t pulse, since_ns;
};

/* By this process's own clock, so that it does not matter what the other one's says. Under a limits page a word without a pulse is damage. */
static bool pulse_is_lost(const struct region_map *map, struct listening *listening, uint64_t now)
{
    uint64_t pulse = map->ext == NULL ? 0 : shared_get(&map->ext->pulse);
    if (pulse == 0 || pulse != listening->pulse) {
        *listening = (struct listening){pulse, now};
        return pulse == 0 && map->page != NULL;
    }
    return is_lost(listening->since_ns, pulse >> 32, now);
}

/* Threads that meet here at once may begin to listen anew: a beat more is waited for then. */
uint64_t gate_heard(const struct page_more *more, uint32_t percent)
{
    static uint64_t last, since_ns;
    uint64_t beats = shared_get(&more->beats), beat_ms = shared_get(&more->beat_ms), now = policy_clock.coarse();
    if (beats + 1 != __atomic_exchange_n(&last, beats + 1, __ATOMIC_RELAXED))
        shared_put(&since_ns, now);
    return is_lost(shared_peek(&since_ns), beat_ms, now) || percent >= 100 ? 0 : percent;
}

/* A word that comes after this is another one's, who may give no pulse. */
static void open_for_the_dead(const struct region_map *map, uint64_t pulse)
{
    int32_t closed = shared_get(&map->region->recent_kernel);
    shared_swap_if(&map->ext->pulse, &pulse, 0);
    if (closed < 0 && shared_swap_if(&map->region->recent_kernel, &closed, ACTIVE))
        log_warning("launches go on: whoever let them wait for a container of higher priority is not heard of any more");
}

void gate_wait(const struct region_map *map)
{
    uint64_t waited = 0;
    struct listening listening = {0, 0};
    for (; gate_closed(map); waited += POLL_NS) {
        if (shared_get(&map->region->recent_kernel) < 0 && pulse_is_lost(map, &listening, policy_clock.now())) {
            open_for_the_dead(map, listening.pulse);
            continue;
        }
        if (waited % TELL_EVERY_NS == 0 && waited > 0)
            log_info("launches wait: a container of higher priority uses the device");
        policy_clock.sleep(POLL_NS);
    }
}

/* True for one caller per interval. */
static bool due(uint64_t *told, uint64_t now, uint64_t interval)
{
    uint64_t last = shared_peek(told);
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
