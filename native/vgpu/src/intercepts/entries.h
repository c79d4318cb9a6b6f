/* Functions that the shapes of entries.c call, beside the services: each is in the file of its subject in this folder. */
#ifndef VGPU_ENTRIES_H
#define VGPU_ENTRIES_H

#include "driver/real.h"
#include "services/blocks.h"
#include "services/contexts.h"

/* symbols.c: the driver's address becomes ours. */
void translate_address(const char *symbol, void **function, int version, uint64_t flags);

/* queries.c: what the container is shown. */
struct shown {
    uint64_t free, total;
};
uint64_t shown_total(CUdevice ordinal, uint64_t bytes);
struct shown shown_memory(uint64_t free_bytes, uint64_t total);
void show_pointer(unsigned count, const int *attributes, void *const *values, CUdeviceptr pointer);
nvmlReturn nvml_began(nvmlReturn rc);
void show_nvml(nvmlDevice handle, uint64_t *reserved, uint64_t *total, uint64_t *free_bytes, uint64_t *used); /* reserved NULL: is asked for */

/* contexts.c */
CUresult context_created(CUresult rc, const CUcontext *context, const struct context_request *request);
bool context_is_over(CUcontext context);

/* allocations.c: the device to book on; -1: the call goes to the driver as it is. */
uint64_t pitched_bytes(uint64_t width, uint64_t height); /* as is expected before the driver has chosen the pitch */
int linear_device(const void *out, uint64_t bytes);
enum memory_type linear_type(int device);
bool linear_bursts(const struct block_request *request);
CUresult linear_or_beyond(struct block_request *request, CUresult rc, CUdeviceptr *pointer, size_t bytes);
CUresult linear_settled(struct block_request *request, CUresult rc, CUdeviceptr pointer, uint64_t bytes);
int array_device(const void *out, const struct array3d_descriptor *array, unsigned levels, uint64_t *bytes);

/* handles.c */
void ipc_exported(const void *handle, CUdeviceptr pointer);
CUresult ipc_opened(CUresult (*open)(CUdeviceptr *, struct ipc_handle, unsigned), CUdeviceptr *pointer, struct ipc_handle handle, unsigned flags);
void exported(const void *os_handle, CUmemHandle handle, int type);
void multicast_created(CUmemHandle multicast);
void multicast_bound(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle memory); /* device -1: the memory's own */
void multicast_bound_at(CUmemHandle multicast, CUdevice device, size_t at, CUdeviceptr address);
bool maps_memory(const struct array_mapping *list, unsigned count);
bool any_memory_limit(void);

/* pools.c */
void pool_created(CUmemPool handle, const struct pool_props *props);

#endif
