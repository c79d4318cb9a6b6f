/*
 * The limits page: what a container was granted, in a file that the node's plugin makes before the container starts. It is root's, and
 * the container sees it by a read-only mount of its own, so nothing inside can change, replace or remove it. Where it is, it
 * holds over environment and region; those go on saying the same to upstream's library and monitors (docs/adr/0067).
 *
 * Little-endian LP64. Written whole and renamed into its place; afterwards only `lifted` changes.
 */
#ifndef VGPU_LIMITS_PAGE_H
#define VGPU_LIMITS_PAGE_H

#include "vgpu/region.h"

#define LIMITS_PAGE_PATH "/usr/local/vgpu/limits"
#define LIMITS_PAGE_MAGIC 0x314c5056u /* "VPL1" */
#define LIMITS_PAGE_VERSION 1u
#define LIMITS_PAGE_REGION_BYTES 256

#define PAGE_OVERSUBSCRIBE 1u
#define PAGE_NO_CORE_LIMIT 2u

struct page_card {
    char uuid[REGION_UUID_BYTES]; /* of a card, or of a slice of one, whose limits the hardware holds */
    uint64_t memory;              /* bytes; 0 = unlimited */
    uint64_t cores;               /* percent; 0 or >= 100 = unlimited */
};

struct limits_page {
    uint32_t magic;
    uint32_t version;
    uint32_t bytes; /* of the whole */
    uint32_t flags;
    uint32_t count;  /* of cards, in the container's NVML order; what else it sees was not granted */
    uint32_t lifted; /* not 0: the monitor leaves the core limits off for now, as with the region's utilization_switch of 0 */
    char region[LIMITS_PAGE_REGION_BYTES]; /* where the region lies in the container */
    struct page_card cards[REGION_DEVICES];
};

AT(page_card, memory, 96);
AT(page_card, cores, 104);
SIZE(page_card, 112);
AT(limits_page, version, 4);
AT(limits_page, bytes, 8);
AT(limits_page, flags, 12);
AT(limits_page, count, 16);
AT(limits_page, lifted, 20);
AT(limits_page, region, 24);
AT(limits_page, cards, 280);
SIZE(limits_page, 2072);

#endif
