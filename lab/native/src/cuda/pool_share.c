/* Pools shared between processes: a pool by descriptor, then each of its blocks by a note. Who imports a block maps the exporter's
 * bytes; the exporter pays for them. An imported pool gives out nothing of its own. */
#define _GNU_SOURCE
#include "pool.h"
#include "old_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A pool is known by its process and its handle there. */
struct pool_note { char magic[16]; CUmemPoolProps props; uint32_t card, pid; CUmemoryPool pool; };
struct block_note {
    char magic[12];
    uint32_t pid;
    uint64_t start_ticks, extent, size;
    CUmemoryPool pool;
    int32_t arena;
};
_Static_assert(sizeof(struct block_note) <= 64, "CUmemPoolPtrExportData");
static const struct pool_note a_pool = {.magic = "pumice-pool"};
static const struct block_note a_block = {.magic = "pool-block"};

EXPORT CUresult cuMemPoolExportToShareableHandle(void *out, CUmemoryPool pool, int type, unsigned long long flags)
{
    ENTER(cuMemPoolExportToShareableHandle);
    const struct pool *p = handle_get(K_POOL, pool);
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || type != 1 || flags != 0 || p->imported || !(p->props.handleTypes & type))
        return CUDA_ERROR_INVALID_VALUE;
    struct pool_note n = a_pool;
    n.props = p->props;
    n.card = p->card;
    n.pid = identity_self().pid;
    n.pool = pool;
    int fd = memory_file("pumice-shared-pool", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &n, sizeof n) != (ssize_t)sizeof n) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

/* Of the card, whatever its number is in the process that made it. */
static int device_of(unsigned card)
{
    for (int i = 0; i < cu.device_count; i++)
        if (cu.devices[i].card == card)
            return i;
    return -1;
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *out, void *handle, int type, unsigned long long flags)
{
    ENTER(cuMemPoolImportFromShareableHandle);
    struct pool_note n;
    if (!out || type != 1 || flags != 0 || pread((int)(intptr_t)handle, &n, sizeof n, 0) != (ssize_t)sizeof n ||
        memcmp(n.magic, a_pool.magic, sizeof n.magic) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (n.props.location.type == LOCATION_DEVICE && (n.props.location.id = device_of(n.card)) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult rc = pool_props_right(&n.props);
    if (rc)
        return rc;
    struct pool *p = pool_new(&n.props);
    if (!p)
        return CUDA_ERROR_OUT_OF_MEMORY;
    p->imported = true;
    p->exporter = n.pid;
    p->exported = n.pool;
    *out = handle_of(K_POOL, p);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolExportPointer(struct block_note *out, CUdeviceptr address)
{
    ENTER(cuMemPoolExportPointer);
    struct block b;
    if (!out || !heap_find(address, &b) || b.address != address || b.kind != M_POOL)
        return CUDA_ERROR_INVALID_VALUE;
    const struct pool *p = handle_get(K_POOL, b.owner);
    if (!p || !p->props.handleTypes)
        return CUDA_ERROR_INVALID_VALUE;
    struct identity self = identity_self();
    struct block_note n = a_block;
    n.start_ticks = self.start_ticks, n.extent = b.extent, n.size = b.size, n.pid = self.pid;
    n.arena = arena_descriptor(), n.pool = b.owner;
    memset(out, 0, 64);
    memcpy(out, &n, sizeof n);
    return CUDA_SUCCESS;
}

/* The exporter's bytes, if what the note says lies within its memory file; MAP_FAILED. */
static char *map(const struct block_note *n, uint64_t page, uint64_t room)
{
    char path[64];
    struct stat file;
    snprintf(path, sizeof path, "/proc/%u/fd/%d", n->pid, n->arena);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool inside = fd >= 0 && status_of_file(fd, &file) == 0 && S_ISREG(file.st_mode) && n->size > 0 && n->extent < (uint64_t)file.st_size &&
                  n->size <= (uint64_t)file.st_size - n->extent;
    char *data = inside ? mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)page) : MAP_FAILED;
    if (fd >= 0)
        close(fd);
    return data;
}

EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, const struct block_note *note)
{
    ENTER_CONTEXT(cuMemPoolImportPointer, context);
    const struct pool *p = handle_get(K_POOL, pool);
    struct block_note n;
    if (!p)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !note || !p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&n, note, sizeof n);
    if (memcmp(n.magic, a_block.magic, sizeof n.magic) != 0 || n.pid != p->exporter || n.pool != p->exported)
        return CUDA_ERROR_INVALID_VALUE;
    if (n.pid != identity_self().pid && !identity_alive(n.pid, n.start_ticks, identity_self().pid_namespace))
        return CUDA_ERROR_MAP_FAILED;
    uint64_t page = n.extent & ~4095ull, room = n.size + (n.extent - page);
    char *data = map(&n, page, room), *bytes = data + (n.extent - page);
    if (data == MAP_FAILED)
        return CUDA_ERROR_MAP_FAILED;
    struct block b = {.address = (uint64_t)bytes, .size = n.size, .data = bytes, .kind = M_IMPORTED, .card = p->card,
                      .context = context_current_handle(), .owner = data, .position = room, .on_host = p->host};
    if (!heap_enter(b)) {
        munmap(data, room);
        return CUDA_ERROR_MAP_FAILED;
    }
    memory_charge(p->card, cu.slot, (struct charge){0, n.size, 1, 0, 0});
    *out = b.address;
    return CUDA_SUCCESS;
}
