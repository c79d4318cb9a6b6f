/*
 * Which of the processes that NVML lists is this one. Drivers list pids of the host, or of the namespace of who asks, and in a container a
 * stranger's pid of the host may be the number that this process has in here. So a number is believed when a monitor wrote it, when
 * it came with this process's first context, or when this namespace is the host's own.
 */
#ifndef VGPU_LISTED_H
#define VGPU_LISTED_H

#include <stdbool.h>
#include <stdint.h>

enum { LISTED = 256 };

struct listing {
    int count; /* -1: NVML does not tell */
    unsigned pids[LISTED];
    uint64_t bytes[LISTED];
};

/* Who is there before this process's first context is made, and who has come with it. */
void listed_look(int device, struct listing *before);
void listed_learn(int device, const struct listing *before);

/* NVML's bytes for this process on the device; 0 when NVML does not tell. */
uint64_t listed_bytes(int device);

#endif
