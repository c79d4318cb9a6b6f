/* The shared region as this process has it: attached to the container's file (core/attach.h), or private when the file cannot be used. */
#ifndef VGPU_REGION_MAP_H
#define VGPU_REGION_MAP_H

#include "vgpu/limits_page.h"

#include <stdbool.h>
#include <sys/types.h>

struct region_map {
    struct region *region;
    struct region_ext *ext; /* never NULL: private memory where the file has none */
    struct region_shared_allocations *shared_allocations; /* NULL: nobody knows what is held together, and who imports pays for himself */
    struct region_fair *fair; /* NULL: as they come */
    const struct limits_page *page; /* over the limits of the region; NULL without one */
    int fd;                 /* -1: private region */
    bool shared;            /* region lies in the container's file */
    bool ext_shared;        /* the extension does too */
    size_t mapped_bytes;
    int slot;    /* this process's own, -1 without one */
    bool locked; /* and its record lock is held */
    struct ledger *ledger; /* under a limits page: core/ledger.h; NULL without one, and the bytes of the region decide */
    size_t ledger_bytes;
    struct usage *usage;   /* under a limits page: policy/usage.h */
    size_t usage_bytes;
    unsigned reopened;     /* how often the program closed our descriptor */
    struct region_slot own; /* this process's books where there is a ledger; its slot is a copy for monitors then */
    int leaving; /* the slot is given back: other threads may still run, and book nothing more */
    dev_t device;
    ino_t inode;
    char path[4096];
};

/* In a forked child: let go of the parent's file description and mapping, without touching its slot. */
void region_forget(struct region_map *map);

/* A descriptor that surely still is the region's file, even if the program closed and reused ours; -1 when there is none. */
int region_fd(struct region_map *map);

/* The same file under a number that programs do not use: they pass low descriptors about and close them in loops. */
int region_fd_move_up(int fd);

/* Returns whether this process has a region to book in. */
static inline bool region_has_books(const struct region_map *map)
{
    return map->slot >= 0 && !shared_peek(&map->leaving);
}

static inline struct region_slot *region_own(struct region_map *map)
{
    return map->ledger != NULL ? &map->own : &map->region->procs[map->slot];
}

/* The table of shared allocations (core/shared_allocations.h) as it is read: the file is the container's own, so nothing in it is taken on trust. */
/* Returns how many places of the table are to be looked at. */
uint32_t shared_allocations_places(const struct region_map *map);

/* NULL: what is there is no shared allocation, and nobody's. */
struct shared_allocation *shared_allocation_at(struct region_map *map, uint32_t place);

/* The number of that slot among the holders; -1: none. */
int shared_allocation_place_of(const struct shared_allocation *shared_allocation, int slot);

/* Returns whether that slot holds any shared allocation. */
bool shared_allocations_hold(struct region_map *map, int slot);

#endif
