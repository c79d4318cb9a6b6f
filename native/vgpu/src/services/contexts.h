/* The memory that contexts cost (HAMi-core src/cuda, HAMi-core src/utils.c): measured by NVML right after they are made, a constant
 * where nothing measures. */
#ifndef VGPU_CONTEXTS_H
#define VGPU_CONTEXTS_H

#include "driver/real.h"
#include "services/nvml.h"
#include "services/reconcile.h"

#include <stdbool.h>

/* Before an allocation: a primary context that was made on a path we do not see is charged now. */
void contexts_notice(int device);
bool contexts_any(int device); /* this process has one there */

struct context_request {
    int device;        /* -1: not ours */
    uint64_t reserved;
    bool first; /* nobody knew what one takes */
    struct memory_sample seen; /* with that booked, and nothing made */
    struct free_delta before;
    struct listing listed;
};

/* Before one is made: what the last one took has to fit. False when it does not. */
bool contexts_begin(struct context_request *request, int device);
void contexts_failed(const struct context_request *request);

/* After it was made; false when it took more than there is: it has to go again, and then contexts_failed is to be called. */
bool contexts_made(const struct context_request *request, CUcontext context);
bool contexts_primary_began(const struct context_request *request, CUcontext context);

bool contexts_primary_known(int device);
void contexts_primary_released(int device); /* releases count references, so the driver is asked whether it is gone */
void contexts_primary_reset(int device);    /* everything in it is gone, even while references keep it */

/* Around the end of one: its device, for underway_end. */
int contexts_ending(CUcontext context);
void contexts_destroyed(CUcontext context);

/*
 * Green contexts: a part of a card's processors each. They retain the primary context, which has their memory and pays for it, and
 * which outlives them. What one takes of its own is not known before, and is a residue of the device (services/reconcile.h).
 */
/* Around the driver's making and ending of one. -1: nothing is measured. */
void greens_begin(int device);
void greens_end(int device);

CUcontext greens_primary(CUdevice ordinal);
void greens_made(CUgreenCtx green, int device, CUcontext primary);

/* Before it ends: its context, and the device; -1: none that was seen. */
int greens_device(CUgreenCtx green, CUcontext *context);
void greens_gone(CUcontext context, int device);

/* Returns the context to which memory is booked that is taken while this context is current. */
uint64_t greens_owner(uint64_t context);

#endif
