#ifndef PUMICE_MACHINE_POOL_H
#define PUMICE_MACHINE_POOL_H

#include "objects.h"

struct pool *pool_new(const CUmemPoolProps *props); /* which are right (pool_props_right); NULL: no memory */
CUresult pool_alloc(struct pool *p, uint64_t bytes, CUcontext context, CUdeviceptr *out);
CUresult pool_free_now(uint64_t address);
void pool_trim(struct pool *p, uint64_t keep); /* its mutex held: gives back free pieces as long as more than that is left */
/* pool_default.c: of a place and a type of memory; all NULL or false where there is no such pool. */
CUmemoryPool pool_built_in(CUmemLocation where, int type);
CUmemoryPool pool_current(CUmemLocation where, int type);
bool pool_set_current(CUmemLocation where, int type, CUmemoryPool pool);
CUresult pool_props_right(const CUmemPoolProps *props);

#endif
