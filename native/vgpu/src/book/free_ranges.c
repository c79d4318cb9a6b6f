#include "book/free_ranges.h"

#include <string.h>

void free_ranges_forget(struct free_ranges *free_ranges)
{
    memset(free_ranges, 0, sizeof *free_ranges);
}

void free_ranges_add(struct free_ranges *free_ranges, uint64_t at, uint64_t bytes)
{
    struct hole *shortest = &free_ranges->hole[0];
    for (int i = 1; i < HOLES; i++)
        if (free_ranges->hole[i].bytes < shortest->bytes)
            shortest = &free_ranges->hole[i];
    if (bytes > shortest->bytes)
        *shortest = (struct hole){at, bytes};
}

/* What is left of a stretch is what lies behind; pools give out from the front. */
static void cut(struct hole *hole, uint64_t from, uint64_t until)
{
    uint64_t end = hole->at + hole->bytes;
    if (until <= hole->at || from >= end)
        return;
    *hole = until < end ? (struct hole){until, end - until} : (struct hole){0, 0};
}

void free_ranges_take(struct free_ranges *free_ranges, uint64_t at, uint64_t bytes)
{
    for (int i = 0; i < HOLES; i++)
        if (free_ranges->hole[i].bytes > 0)
            cut(&free_ranges->hole[i], at, at + bytes);
}

bool free_ranges_fit(const struct free_ranges *free_ranges, uint64_t bytes)
{
    for (int i = 0; i < HOLES; i++)
        if (free_ranges->hole[i].bytes >= bytes)
            return true;
    return false;
}
