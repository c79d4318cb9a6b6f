#ifndef PUMICE_MACHINE_POOL_H
#define PUMICE_MACHINE_POOL_H

#include "objects.h"

struct pool *pool_new(CUdevice device);
CUresult pool_alloc(struct pool *p, uint64_t bytes, CUcontext context, CUdeviceptr *out);
CUresult pool_free_now(uint64_t address);
void pool_trim(struct pool *p, uint64_t keep); /* its mutex held: gives back free pieces as long as more than that is left */
CUmemoryPool pool_built_in(CUdevice device);
CUmemoryPool pool_current(CUdevice device);
void pool_set_current(CUdevice device, CUmemoryPool pool);

#endif
