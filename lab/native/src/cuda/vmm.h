/* Physical memory of virtual memory management, for what binds it elsewhere. */
#ifndef PUMICE_MACHINE_VMM_H
#define PUMICE_MACHINE_VMM_H

#include "objects.h"

void vmm_lock(void);
void vmm_unlock(void);
/* All of these under the lock. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);
void physical_end_if_unused(struct physical *p, CUmemGenericAllocationHandle handle);

/* multicast.c */
bool multicast_device(CUdevice device); /* whether the card can be of a team */
CUresult multicast_await(CUmemGenericAllocationHandle handle); /* until all devices of its team are there, if it has one; not under the lock */
void multicast_end(struct physical *p);
CUresult multicast_export(const struct physical *p, int *fd);
CUresult multicast_import(CUmemGenericAllocationHandle *out, int fd);

#endif
