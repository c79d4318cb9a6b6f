/*
 * The one way in which device memory is granted: reserve, then allocate (HAMi-core src/allocator/allocator.c).
 *
 * Every process announces a request before it looks at the sum, so of two requests that do not both fit at most one is
 * granted on the lock-free path; the slow path under the slot lock decides the rest. Granted bytes never exceed the limit and
 * a request that fits is never refused.
 */
#ifndef VGPU_MEMORY_H
#define VGPU_MEMORY_H

#include "core/granted.h"
#include "core/region_map.h"

enum grant { GRANTED, REFUSED };

/* Books bytes on the device for this process, or refuses and leaves no trace. */
enum grant memory_reserve(struct region_map *map, int device, enum memory_type type, uint64_t bytes);

/* Books without asking: contexts are charged whatever the limit says. */
void memory_charge(struct region_map *map, int device, enum memory_type type, uint64_t bytes);

/* Gives back at most what is booked; a larger amount is a bug of ours, logged once and clipped. */
void memory_release(struct region_map *map, int device, enum memory_type type, uint64_t bytes);

/* Moves bytes that are booked as one type to another; the sum is the same all the while. */
void memory_rename(struct region_map *map, int device, enum memory_type from, enum memory_type to, uint64_t bytes);

/* Bytes booked by all live slots of the container. */
uint64_t memory_used(struct region_map *map, int device);

/* The same as NVML tells it: per slot the larger of what is booked and what the monitor measured. */
uint64_t memory_used_shown(struct region_map *map, int device);

/* 0 = unlimited. */
static inline uint64_t memory_limit(const struct region_map *map, int device)
{
    return map->page != NULL ? granted_memory(map->page, device) : shared_peek(&map->region->limit[device]);
}

/* Returns the most bytes that it may hold with memory that may leave the card; not less than the limit. */
static inline uint64_t memory_most(const struct region_map *map, int device)
{
    const struct page_more *more = granted_more(map->page);
    uint64_t limit = memory_limit(map, device), most = more == NULL ? 0 : shared_peek(&more->burst_memory[device]);
    return limit != 0 && most > limit ? most : limit;
}

#endif
