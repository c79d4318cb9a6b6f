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

enum lock_verdict lock_try(int fd, uint64_t start, uint64_t bytes);
/* Waits for as long as a lock is ever waited for (core/waits.h). */
enum lock_verdict lock_wait(int fd, uint64_t start, uint64_t bytes);
void lock_release(int fd, uint64_t start, uint64_t bytes);
/* Whether another process (another file description) holds it. */
bool lock_held_elsewhere(int fd, uint64_t start, uint64_t bytes);

#endif
