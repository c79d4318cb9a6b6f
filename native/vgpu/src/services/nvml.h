/*
 * NVML for our own questions. NVML counts who initialised it; our reference must not keep it alive after the program's last shutdown, for
 * a program may ask whether it is. From then on it is ours for the length of a question.
 */
#ifndef VGPU_NVML_H
#define VGPU_NVML_H

#include "driver/real.h"

#include <stdbool.h>
#include <stdint.h>

/* False when there is none; else own_nvml_done() follows. May be nested. */
bool own_nvml(void);
void own_nvml_done(void);

/* The program's. */
void own_nvml_program_began(void);
nvmlReturn own_nvml_program_ends(void);

/*
 * Which of the processes that NVML lists is this one. Drivers list pids of the host, or of the namespace of who asks, and in a container a
 * stranger's pid of the host may be the number that this process has in here. So a number is believed when a monitor wrote it, when
 * it came with this process's first context, or when this namespace is the host's own.
 */
enum { LISTED = 256 };

struct listing {
    int count; /* -1: NVML does not tell */
    unsigned pids[LISTED];
    uint64_t bytes[LISTED];
};

/* Lists the processes that NVML sees before this process's first context is made; listed_learn finds the one that came with it. */
void listed_look(int device, struct listing *before);
void listed_learn(int device, const struct listing *before);

/* NVML's bytes for this process on the device; 0 when NVML does not tell. */
uint64_t listed_bytes(int device);

/*
 * The decrease of a whole card's free memory over a call, where nobody tells what this process has.
 *
 * What the container booked meanwhile is not the call's. What other containers took or gave back meanwhile is not told apart,
 * so whoever uses the figure bounds it by what the call can have taken.
 */
struct free_delta {
    int device;          /* region index; -1: nothing is to be measured */
    bool by_nvml;        /* there was no context to ask the driver in */
    uint64_t free_bytes; /* 0: not told */
    uint64_t booked;
};

/* In the current context, or by NVML, which needs none. Only devices with a memory limit are looked at. */
struct free_delta free_delta_in_context(int device);
struct free_delta free_delta_by_nvml(int device);

/* Returns the free bytes that have gone since then; negative: there are more. 0 where NVML did not answer. */
int64_t free_delta_taken(const struct free_delta *before);

/* Returns whether the card has less free memory at all; cheap, and enough to see that nothing happened. */
bool free_delta_less(const struct free_delta *before);

#endif
