/*
 * Free ranges of a memory pool: stretches that blocks left, and what a new piece has behind its first block. The driver may
 * know of more, never of less: what it gives out is taken from here, and a pool that gave something back is one of which nothing is known.
 */
#ifndef VGPU_FREE_RANGES_H
#define VGPU_FREE_RANGES_H

#include <stdbool.h>
#include <stdint.h>

enum { FREE_RANGES = 32 };

struct free_ranges {
    struct free_range {
        uint64_t at, bytes; /* bytes 0: none */
    } ranges[FREE_RANGES];
};

void free_ranges_forget(struct free_ranges *free_ranges);
void free_ranges_add(struct free_ranges *free_ranges, uint64_t at, uint64_t bytes); /* the shortest is forgotten where there is no place */
void free_ranges_take(struct free_ranges *free_ranges, uint64_t at, uint64_t bytes);
bool free_ranges_fit(const struct free_ranges *free_ranges, uint64_t bytes);

#endif
