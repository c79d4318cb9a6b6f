/*
 * The exchange between containers of a node about one GPU, in a file of the host-wide directory (HAMi-core
 * src/multiprocess/multiprocess_utilization_watcher.c), and
 * the optional arbiter on it: a process that has work on the GPU is left alone until it is done or its window is over.
 *
 * The file is anybody's to write: every value read is clamped, nothing in it raises a container's own budget, no wait for it
 * is longer than ARBITER_PATIENCE_NS, and without it only the accuracy under contention is lost.
 */
#ifndef VGPU_ARBITER_H
#define VGPU_ARBITER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ARBITER_PATIENCE_NS 200000000ull
enum { ARBITER_ENTRIES = 63, ARBITER_BYTES = 8192 };

struct arbiter_entry {
    uint64_t identity; /* of a process of a container's region; 0 = free */
    uint64_t heartbeat_ns;
    uint64_t busy_until_ns; /* when its queued work is expected to be done */
    uint32_t weight;        /* its core limit */
    uint32_t flags;
    int64_t deficit_ns;       /* reserved */
    uint64_t wants_since_ns; /* 0: does not wait */
    uint64_t reserved[10];
};

enum { ARBITER_WANTS = 1u, ARBITER_TAKES_PART = 2u };

struct arbiter_file {
    uint32_t magic, version, entries, pad;
    uint64_t owner; /* index of the entry + 1; 0 = nobody */
    uint64_t window_end_ns;
    uint64_t reserved[12];
    struct arbiter_entry entry[ARBITER_ENTRIES];
};

struct arbiter {
    struct arbiter_file *file; /* NULL: not available */
    int own;
    int fd; /* what others hold of the file is asked by it */
    dev_t device;
    ino_t inode;
};

/* Maps DIRECTORY/act-UUID and finds or takes the container's entry; false where that is not possible. */
bool arbiter_open(struct arbiter *arbiter, const char *directory, const char *uuid, uint64_t identity, uint64_t now);
void arbiter_close(struct arbiter *arbiter);

void arbiter_publish(struct arbiter *arbiter, uint64_t now, uint64_t busy_until, uint32_t weight, bool takes_part);
void arbiter_answered(struct arbiter *arbiter, uint64_t busy_until); /* may be earlier than what was published */

/* Returns the number of other containers that had work on the GPU after this moment. */
unsigned arbiter_others(const struct arbiter *arbiter, uint64_t now, uint64_t since);

/* The time at which the other containers are expected to be done with the GPU. */
uint64_t arbiter_clear_at(const struct arbiter *arbiter, uint64_t now);

/* 0: launch now, the GPU is this container's until its window ends; else look again after so many ns. */
uint64_t arbiter_ask(struct arbiter *arbiter, uint64_t now, uint32_t weight);

#endif
