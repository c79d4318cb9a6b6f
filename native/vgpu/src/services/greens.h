/*
 * Green contexts: a part of a card's processors each. They retain the primary context, which has their memory and pays for it, and
 * which outlives them. What one takes of its own is not known before, and is a residue of the device (services/reconcile.h).
 */
#ifndef VGPU_GREENS_H
#define VGPU_GREENS_H

#include "driver/real.h"

/* Around the driver's making and ending of one. -1: nothing is measured. */
void greens_begin(int device);
void greens_end(int device);

CUcontext greens_primary(CUdevice ordinal);
void greens_made(CUgreenCtx green, int device, CUcontext primary);

/* Before it ends: its context, and the device; -1: none that was seen. */
int greens_device(CUgreenCtx green, CUcontext *context);
void greens_gone(CUcontext context, int device);

/* Whose the memory is that is taken while this context is current. */
uint64_t greens_owner(uint64_t context);

void greens_after_fork(void);

#endif
