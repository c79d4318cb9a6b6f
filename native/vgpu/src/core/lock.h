/*
 * Record locks on byte ranges of the region file. The kernel owns them, so a process that dies in any state releases
 * them (spec hami-core 4.3). Open-file-description locks; classic POSIX locks where the kernel has none.
 *
 * Waiting is polling with a growing pause: on some network file systems a blocking wait wakes half a minute late.
 */
#ifndef VGPU_LOCK_H
#define VGPU_LOCK_H

#include <stdbool.h>
#include <stdint.h>

enum lock_verdict { LOCK_TAKEN, LOCK_BUSY, LOCK_BROKEN };

#define LOCK_WAIT_MAX_NS 50000000ull /* the longest that a lock is ever waited for */

enum lock_verdict lock_try(int fd, uint64_t start, uint64_t bytes);
enum lock_verdict lock_wait(int fd, uint64_t start, uint64_t bytes);
void lock_release(int fd, uint64_t start, uint64_t bytes);
/* Whether another process (another file description) holds it. */
bool lock_held_elsewhere(int fd, uint64_t start, uint64_t bytes);

/* The longest wait of this process so far, in ns of pauses taken. */
uint64_t lock_longest_wait_ns(void);

#endif
