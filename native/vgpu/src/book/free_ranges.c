#include "book/free_ranges.h"

#include <string.h>

void free_ranges_forget(struct free_ranges *free_ranges)
{
    memset(free_ranges, 0, sizeof *free_ranges);
}

void free_ranges_add(struct free_ranges *free_ranges, uint64_t at, uint64_t bytes)
{
    struct free_range *shortest = &free_ranges->ranges[0];
    for (int i = 1; i < FREE_RANGES; i++)
        if (free_ranges->ranges[i].bytes < shortest->bytes)
            shortest = &free_ranges->ranges[i];
    if (bytes > shortest->bytes)
        *shortest = (struct free_range){at, bytes};
}

/* What is left of a stretch is what lies behind; pools give out from the front. */
static void cut(struct free_range *range, uint64_t from, uint64_t until)
{
    uint64_t end = range->at + range->bytes;
    if (until <= range->at || from >= end)
        return;
    *range = until < end ? (struct free_range){until, end - until} : (struct free_range){0, 0};
}

void free_ranges_take(struct free_ranges *free_ranges, uint64_t at, uint64_t bytes)
{
    for (int i = 0; i < FREE_RANGES; i++)
        if (free_ranges->ranges[i].bytes > 0)
            cut(&free_ranges->ranges[i], at, at + bytes);
}

bool free_ranges_fit(const struct free_ranges *free_ranges, uint64_t bytes)
{
    for (int i = 0; i < FREE_RANGES; i++)
        if (free_ranges->ranges[i].bytes >= bytes)
            return true;
    return false;
}
