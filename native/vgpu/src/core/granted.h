/*
 * The grants of the limits page (vgpu/limits_page.h): a page that is there holds, whatever else is said. One that cannot be read, or is of
 * a layout that this library does not know, grants nothing: somebody meant to limit the container, and nobody knows to what.
 */
#ifndef VGPU_GRANTED_H
#define VGPU_GRANTED_H

#include "vgpu/limits_page.h"

#define GRANTED_NOTHING_BYTES 1u /* 0 is unlimited */

/*
 * The page at this path, NULL when there is none. Only a read-only mount of its own makes a file the page: what lies on the container's
 * disk is the tenant's, and counts as little as if it were not there. *problem says what is wrong with a page that grants nothing.
 */
const struct limits_page *granted_page(const char *path, const char **problem);

/* The page that grants nothing. */
const struct limits_page *granted_nothing(void);

static inline uint32_t granted_cards(const struct limits_page *page)
{
    uint32_t count = shared_peek(&page->count);
    return count < REGION_DEVICES ? count : REGION_DEVICES;
}

static inline uint64_t granted_memory(const struct limits_page *page, int device)
{
    return (uint32_t)device < granted_cards(page) ? shared_peek(&page->cards[device].memory) : GRANTED_NOTHING_BYTES;
}

static inline uint64_t granted_cores(const struct limits_page *page, int device)
{
    return (uint32_t)device < granted_cards(page) ? shared_peek(&page->cards[device].cores) : 0;
}

static inline const char *granted_uuid(const struct limits_page *page, int device, const char *otherwise)
{
    return page != NULL && (uint32_t)device < granted_cards(page) ? page->cards[device].uuid : otherwise;
}

/* NULL: the page is of before, and the region says who is held back. What lies behind the end of a short file is zeros. */
static inline const struct page_more *granted_more(const struct limits_page *page)
{
    return page != NULL && page->more.magic == PAGE_MORE_MAGIC ? &page->more : NULL;
}

#endif
