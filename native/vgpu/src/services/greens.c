#include "services/greens.h"

#include "book/records.h"
#include "services/contexts.h"
#include "services/process_state.h"
#include "services/launching.h"
#include "services/reconcile.h"

static uint32_t greens; /* how many there are: nobody looks for one where there is none */

void greens_after_fork(void)
{
    greens = 0;
}

void greens_begin(int device)
{
    if (device >= 0)
        moves_begin(device);
}

void greens_end(int device)
{
    if (device >= 0)
        reconcile_changed(device, 0);
}

CUcontext greens_primary(CUdevice ordinal)
{
    CUcontext primary = NULL;
    if (CUDA(cuDevicePrimaryCtxRetain(&primary, ordinal)) == CUDA_SUCCESS)
        CUDA(cuDevicePrimaryCtxRelease_v2(ordinal));
    return primary;
}

static CUcontext context_of(CUgreenCtx green)
{
    CUcontext context = NULL;
    bool told = CUDA(cuCtxFromGreenCtx(&context, green)) == CUDA_SUCCESS;
    return told ? context : NULL;
}

void greens_made(CUgreenCtx green, int device, CUcontext primary)
{
    struct record record = {.key = (uint64_t)(uintptr_t)context_of(green), .owner = (uint64_t)(uintptr_t)primary,
                            .device = (int16_t)device, .kind = RECORD_GREEN, .references = 1};
    if (record.key != 0 && records_insert(&record))
        __atomic_add_fetch(&greens, 1, __ATOMIC_RELAXED);
}

int greens_device(CUgreenCtx green, CUcontext *context)
{
    struct record record;
    if (__atomic_load_n(&greens, __ATOMIC_RELAXED) == 0)
        return -1;
    *context = context_of(green);
    return *context != NULL && records_find(RECORD_GREEN, (uint64_t)(uintptr_t)*context, &record) ? record.device : -1;
}

void greens_gone(CUcontext context, int device)
{
    struct record record;
    if (!records_remove(RECORD_GREEN, (uint64_t)(uintptr_t)context, &record))
        return;
    __atomic_sub_fetch(&greens, 1, __ATOMIC_RELAXED);
    launching_context_ended(context);
    contexts_primary_released(device);
}

uint64_t greens_owner(uint64_t context)
{
    struct record record;
    bool green = __atomic_load_n(&greens, __ATOMIC_RELAXED) > 0 && records_find(RECORD_GREEN, context, &record);
    return green ? record.owner : context;
}
