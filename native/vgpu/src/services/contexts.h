/* What contexts cost (spec hami-core 7.2 and 10): measured by NVML right after they are made, a constant where nothing measures. */
#ifndef VGPU_CONTEXTS_H
#define VGPU_CONTEXTS_H

#include "driver/real.h"
#include "services/free_delta.h"

#include <stdbool.h>

/* Before an allocation: a primary context that was made on a path we do not see is charged now. */
void contexts_notice(int device);
bool contexts_any(int device); /* this process has one there */

/* Before one is made; there need not be a context yet in which to ask the driver. */
struct free_delta contexts_before(int device);

bool contexts_primary_known(int device);
void contexts_primary_began(int device, CUcontext context, const struct free_delta *before);
void contexts_primary_released(int device); /* releases count references, so the driver is asked whether it is gone */
void contexts_primary_reset(int device);    /* everything in it is gone, even while references keep it */

void contexts_made(CUcontext context, int device, const struct free_delta *before);
void contexts_destroyed(CUcontext context);

void contexts_after_fork(void);

#endif
