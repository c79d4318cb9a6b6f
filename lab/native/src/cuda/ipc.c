/* Memory shared with other processes by handle: the importer maps the exporter's bytes, and pays once the exporter has let them go. */
#define _GNU_SOURCE
#include "objects.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared {
    char magic[8];
    uint64_t start_ticks, extent, size;
    uint32_t pid;
    int32_t arena;
    uint32_t card, share;
    uint64_t share_id;
};
_Static_assert(sizeof(struct shared) <= sizeof(CUipcMemHandle), "the note must fit the handle");

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address)
{
    ENTER_CONTEXT(cuIpcGetMemHandle, context);
    struct block b;
    if (!out || !heap_find(address, &b) || b.kind != M_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!card_at(b.card)->ipc_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!heap_share(address, &b))
        return CUDA_ERROR_OPERATING_SYSTEM;
    struct identity self = identity_self();
    struct shared s = {"pumice", self.start_ticks, b.extent, b.size, self.pid, arena_descriptor(), b.card, b.share, b.share_id};
    memset(out, 0, sizeof *out);
    memcpy(out, &s, sizeof s);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    ENTER_CONTEXT(cuIpcOpenMemHandle_v2, context);
    struct shared s;
    memcpy(&s, &handle, sizeof s);
    if (!out || flags != 1 || memcmp(s.magic, "pumice", 7) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (s.pid == identity_self().pid)
        return CUDA_ERROR_INVALID_CONTEXT; /* the exporter itself cannot open it */
    if (!identity_alive(s.pid, s.start_ticks, identity_self().pid_namespace))
        return CUDA_ERROR_MAP_FAILED;
    if (!share_join(s.share, s.share_id, cu.slot))
        return CUDA_ERROR_MAP_FAILED; /* nobody holds it any more */
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%d", s.pid, s.arena);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t page = s.extent & ~4095ull, room = s.size + (s.extent - page);
    char *data = fd < 0 ? MAP_FAILED : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)page);
    if (fd >= 0)
        close(fd);
    char *bytes = data + (s.extent - page);
    struct block b = {.address = (uint64_t)bytes, .size = s.size, .physical = (s.size + BLOCK - 1) & ~(BLOCK - 1), .data = bytes,
                      .kind = M_IMPORTED, .card = s.card, .context = context_current_handle(), .owner = data, .position = room,
                      .share = s.share, .share_id = s.share_id};
    if (data == MAP_FAILED || !heap_enter(b)) {
        if (data != MAP_FAILED)
            munmap(data, room);
        if (!share_leave(s.share, cu.slot))
            memory_release(s.card, cu.slot, (struct charge){b.physical, 0, 0, 0, 0});
        return CUDA_ERROR_MAP_FAILED;
    }
    memory_charge(s.card, cu.slot, (struct charge){0, s.size, 1, 0, 0});
    *out = b.address;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(out, handle, flags);
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    ENTER_CONTEXT(cuIpcCloseMemHandle, context);
    return heap_free(address, M_IMPORTED);
}
