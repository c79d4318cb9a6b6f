/* The format of the file that lies where the region should, and how it becomes a region. */
#ifndef VGPU_REGION_FORMAT_H
#define VGPU_REGION_FORMAT_H

#include "core/config.h"
#include "vgpu/region.h"

#include <stdbool.h>
#include <sys/types.h>

enum region_kind {
    KIND_EMPTY,    /* nothing yet, or a region whose magic was lost: to be formatted */
    KIND_OURS,     /* 1.2 with our extension */
    KIND_UPSTREAM, /* 1.2 without it */
    KIND_OLDER,    /* layout 0 or 1.1, or a size that belongs to no known 1.x: formatted once nobody lives in it */
    KIND_FOREIGN   /* not a region at all; never written to */
};

struct region_probe {
    enum region_kind kind;
    int layout;     /* 0, 11 or 12: whose limits can be kept; -1 = none */
    off_t bytes;
};

/* The verdict from the first 12 bytes, the first 12 of the extension (NULL: not readable) and the size. Pure. */
struct region_probe region_judge(const uint32_t head[3], const uint32_t ext[3], off_t bytes);

/* Reads the head of the file; nothing is mapped, so a short file cannot hurt. */
struct region_probe region_probe(int fd);

/* Returns whether a process registered in an older file still lives. */
bool region_older_is_live(int fd, int layout);

/* The limits that a valid file holds; false when it holds none to be trusted. */
bool region_read_limits(int fd, const struct region_probe *probe, uint64_t *memory, uint64_t *sm);

struct region_limits {
    uint64_t memory[REGION_DEVICES];
    uint64_t sm[REGION_DEVICES];
    int32_t priority;
};

/*
 * keep(slot) says which slots belong to living processes and stay as they are; what is blank is zero already, and two megabytes of
 * it are not touched while others wait. The magic comes last.
 */
void region_format(struct region *region, const struct region_limits *limits, bool blank, bool (*keep)(int slot, void *data), void *data);
void region_format_ext(struct region_ext *ext, bool blank, bool (*keep)(int slot, void *data), void *data);

/* Writes the words that mark a region as ours. */
void region_format_heads(struct region *region, struct region_ext *ext);

#endif
