/*
 * The monitor's protocol (HAMi cmd/vGPUmonitor/feedback.go): tell that the container is active, wait while it is blocked, obey the switch.
 */
#ifndef VGPU_GATE_H
#define VGPU_GATE_H

#include "core/config.h"
#include "core/granted.h"
#include "core/region_map.h"

/* Percent; 0 or >= 100: none. */
static inline uint64_t core_limit(const struct region_map *map, int device)
{
    return map->page != NULL ? granted_cores(map->page, device) : shared_peek(&map->region->sm_limit[device]);
}

/* A percent that the page says, for as long as somebody beats; 0: nobody has been heard of for long. */
uint64_t gate_heard(const struct page_more *more, uint32_t percent);

/* On the page they are off for as long as somebody beats: who is alone now may not be when nobody is there to say so. */
static inline bool core_limits_are_on(const struct region_map *map)
{
    if (map->page == NULL)
        return shared_peek(&map->region->utilization_switch) != 0;
    const struct page_more *more = granted_more(map->page);
    bool beaten = more != NULL && shared_peek(&more->beat_ms) != 0; /* monitors of before lift limits and do not */
    return shared_peek(&map->page->lifted) == 0 || (beaten && gate_heard(more, 1) == 0);
}

/* Returns the core percentage left to a container that more important work holds back; 0: it is not held back. */
static inline uint64_t gate_floor(const struct region_map *map)
{
    const struct page_more *more = granted_more(map->page);
    uint32_t held = more == NULL ? 0 : shared_peek(&more->held);
    return __builtin_expect(held == 0, 1) ? 0 : gate_heard(more, held);
}

/* Returns the core percentage that others leave to a container that may have more than its limit; 0: no more. */
static inline uint64_t gate_burst(const struct region_map *map)
{
    const struct page_more *more = granted_more(map->page);
    uint32_t burst = more == NULL ? 0 : shared_peek(&more->burst);
    return __builtin_expect(burst == 0, 1) ? 0 : gate_heard(more, burst);
}

/* The core limit that holds for the device right now; 0 = none. Few loads, so that live changes need no cache. */
static inline uint64_t gate_limit(const struct region_map *map, enum core_policy policy, int device)
{
    uint64_t limit = core_limit(map, device), floor = gate_floor(map), burst;
    if (limit == 0 || limit >= 100 || policy == POLICY_DISABLE)
        return floor;
    burst = gate_burst(map);
    limit = burst > limit ? burst : limit;
    limit = policy == POLICY_FORCE || core_limits_are_on(map) ? limit : 0;
    return floor != 0 && (limit == 0 || floor < limit) ? floor : limit;
}

/*
 * Returns whether launches have to wait: the monitor blocks the container, or somebody suspended this process. Where the page
 * says who is held back, anybody's word in the region counts for nothing.
 */
static inline bool gate_closed(const struct region_map *map)
{
    return granted_more(map->page) == NULL && (shared_peek(&map->region->recent_kernel) < 0 ||
           (map->slot >= 0 && shared_peek(&map->region->procs[map->slot].status) == SLOT_SUSPENDED));
}

/* Waits until it opens, or until whoever closed it gave a pulse and has lost it: then it opens it. */
void gate_wait(const struct region_map *map);

/* A launch happened at this time: keeps recent_kernel and last_kernel_time up to date, rarely. */
void gate_record(const struct region_map *map, uint64_t record_interval_s, uint64_t now);

#endif
