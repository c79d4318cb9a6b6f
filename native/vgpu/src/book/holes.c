#include "book/holes.h"

#include <string.h>

void holes_forget(struct holes *holes)
{
    memset(holes, 0, sizeof *holes);
}

void holes_add(struct holes *holes, uint64_t at, uint64_t bytes)
{
    struct hole *shortest = &holes->hole[0];
    for (int i = 1; i < HOLES; i++)
        if (holes->hole[i].bytes < shortest->bytes)
            shortest = &holes->hole[i];
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

void holes_take(struct holes *holes, uint64_t at, uint64_t bytes)
{
    for (int i = 0; i < HOLES; i++)
        if (holes->hole[i].bytes > 0)
            cut(&holes->hole[i], at, at + bytes);
}

bool holes_fit(const struct holes *holes, uint64_t bytes)
{
    for (int i = 0; i < HOLES; i++)
        if (holes->hole[i].bytes >= bytes)
            return true;
    return false;
}
