/*
 * Record locks on byte ranges of the region file. The kernel owns them, so a process that dies in any state releases them (HAMi-core
 * src/multiprocess/multiprocess_memory_limit.c). Open-file-description locks; classic POSIX locks where the kernel has none.
 *
 * Waiting is polling with a growing pause: on some network file systems a blocking wait wakes half a minute late.
 */
#ifndef VGPU_LOCK_H
#define VGPU_LOCK_H

#include <stdbool.h>
#include <stdint.h>

enum lock_verdict { LOCK_TAKEN, LOCK_BUSY, LOCK_BROKEN };

enum lock_verdict lock_try(int fd, uint64_t start, uint64_t bytes);
/* Waits for as long as a lock is ever waited for (core/waits.h). */
enum lock_verdict lock_wait(int fd, uint64_t start, uint64_t bytes);
void lock_release(int fd, uint64_t start, uint64_t bytes);
/* Returns whether another process (another open file description) holds the lock. */
bool lock_held_elsewhere(int fd, uint64_t start, uint64_t bytes);

/* Together with others who share it, and against whoever wants it alone. What is held alone becomes shared without a gap. */
enum lock_verdict lock_share(int fd, uint64_t start, uint64_t bytes);

/* Locks belong to open files here: they last until descriptor and mapping are gone, and threads and children share them. */
bool lock_of_open_files(void);

struct lock_range {
    uint64_t start, bytes;
};

/* Finds a lock that others hold in the range, not necessarily the first. `alone`: exclusive locks only. False: there is none. */
bool lock_find(int fd, uint64_t start, uint64_t bytes, bool alone, struct lock_range *found);

/* Meets each stretch that others hold there, from below, once however many share it. False: there are too many to look at. */
bool lock_walk(int fd, uint64_t start, uint64_t bytes, bool alone, void (*meet)(struct lock_range stretch, void *data), void *data);

#endif
