/*
 * The limits page: what a container was granted, in a file that the node's plugin makes before the container starts. It is root's, and
 * the container sees it by a read-only mount of its own, so nothing inside can change, replace or remove it. Where it is, it
 * holds over environment and region; those go on saying the same to upstream's library and monitors (docs/adr/0067).
 *
 * Little-endian LP64. Written whole and renamed into its place; afterwards only `lifted` and what follows `held` change.
 */
#ifndef VGPU_LIMITS_PAGE_H
#define VGPU_LIMITS_PAGE_H

#include "vgpu/region.h"

#define LIMITS_PAGE_PATH "/usr/local/vgpu/limits"
#define LIMITS_PAGE_MAGIC 0x314c5056u /* "VPL1" */
#define LIMITS_PAGE_VERSION 1u
#define LIMITS_PAGE_REGION_BYTES 256
#define LIMITS_PAGE_BYTES 2072u       /* of a page without what stands behind the cards */
#define PAGE_MORE_MAGIC 0x314d5056u /* "VPM1" */

#define PAGE_OVERSUBSCRIBE 1u
#define PAGE_NO_CORE_LIMIT 2u

struct page_card {
    char uuid[REGION_UUID_BYTES]; /* of a card, or of a slice of one, whose limits the hardware holds */
    uint64_t memory;              /* bytes; 0 = unlimited */
    uint64_t cores;               /* percent; 0 or >= 100 = unlimited */
};

/* Behind the cards since priorities are granted; libraries of before do not look there, and pages of before have zeros. */
struct page_more {
    uint32_t magic;
    uint32_t priority; /* 0 high, 1 low: as granted, whatever the environment says */
    /*
     * Percent of the time of its cards that the container keeps while more important work runs there; 0: nobody holds it back. Whoever wrote it
     * beats as long as it is to hold: so often so far, and milliseconds between two beats.
     */
    uint32_t held;
    uint32_t beats;
    uint32_t beat_ms;
    uint32_t burst; /* percent in place of the cores while beats are heard, above what was asked for; 0: the cores hold */
    uint32_t unused[2];
    uint64_t burst_memory[REGION_DEVICES]; /* bytes that the container may hold of each card, managed memory beyond what was asked for; 0: no more */
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
    struct page_more more;
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
AT(limits_page, more, LIMITS_PAGE_BYTES);
AT(page_more, priority, 4);
AT(page_more, held, 8);
AT(page_more, beats, 12);
AT(page_more, beat_ms, 16);
AT(page_more, burst, 20);
AT(page_more, burst_memory, 32);
SIZE(page_more, 160);

#endif
