/* Memory shared with other processes by handle. The exporter pays; the importer maps the exporter's bytes. */
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
    uint32_t card;
    uint32_t reserved[3];
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
    struct identity self = identity_self();
    struct shared s = {"pumice", self.start_ticks, b.extent, b.size, self.pid, arena_descriptor(), b.card, {0}};
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
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%d", s.pid, s.arena);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t page = s.extent & ~4095ull, room = s.size + (s.extent - page);
    char *data = fd < 0 ? MAP_FAILED : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)page);
    if (fd >= 0)
        close(fd);
    if (data == MAP_FAILED)
        return CUDA_ERROR_MAP_FAILED;
    char *bytes = data + (s.extent - page);
    struct block b = {.address = (uint64_t)bytes, .size = s.size, .physical = room, .data = bytes, .kind = M_IMPORTED, .card = s.card,
                      .context = context_current_handle(), .owner = data};
    if (!heap_enter(b)) {
        munmap(data, room);
        return CUDA_ERROR_MAP_FAILED;
    }
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
    struct block b;
    if (!heap_leave(address, M_IMPORTED, &b))
        return CUDA_ERROR_INVALID_VALUE;
    munmap(b.owner, b.physical);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    ENTER(cuIpcGetEventHandle);
    (void)event;
    return out ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    ENTER(cuIpcOpenEventHandle);
    (void)handle;
    return out ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}
