/*
 * Counters of processes that share a file, which none of them can write for another: the kernel's record locks again (core/ledger.h).
 *
 * Each process has a lane of positions far behind the file's end. The end of its lock there says how many microseconds it has counted
 * so far; how many bytes the lock has says how many of them, and of everybody's, are not paid for. Who looks learns what the others
 * have counted since it looked last.
 */
#ifndef VGPU_LANES_H
#define VGPU_LANES_H

#include <stdbool.h>
#include <stdint.h>

struct lanes {
    uint64_t first; /* where the lanes begin */
    int count, own;
    uint64_t begin, end;   /* of the own lock, in its lane; 0: there is none */
    int64_t unsaid_ns;     /* counted, and not locked yet; below 0: too much is */
    bool looked;
    uint64_t *seen;        /* by lane: where each other's lock ended at the last look */
};

#define LANES_BYTES (1ull << 44) /* of a lane: half a year of microseconds */

/* Says all that is counted. False: the kernel does not let it. */
bool lanes_say(struct lanes *lanes, int fd, uint64_t unpaid_ns);

struct lanes_found {
    uint64_t grown_ns;  /* what others have counted since the last look; nothing at the first one */
    uint64_t unpaid_ns; /* the most that any of them says */
};
struct lanes_found lanes_look(struct lanes *lanes, int fd);

#endif
