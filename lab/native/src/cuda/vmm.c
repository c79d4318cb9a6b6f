/* Virtual memory management: physical memory, address ranges, and the mapping of one into the other.
 *
 * Physical memory is given back when the handle is released and no mapping of it is left, here and in whoever imported it. */
#define _GNU_SOURCE
#include "old_calls.h"
#include "vmm.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t physicals = PTHREAD_MUTEX_INITIALIZER;

void vmm_lock(void)
{
    pthread_mutex_lock(&physicals);
}

void vmm_unlock(void)
{
    pthread_mutex_unlock(&physicals);
}

static bool valid_location(const CUmemLocation *l)
{
    return l->type == 1 ? l->id >= 0 && l->id < cu.device_count : l->type >= 2 && l->type <= 4;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, int option)
{
    ENTER(cuMemGetAllocationGranularity);
    if (!out || !prop || prop->type != 1 || (option != 0 && option != 1))
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_location(&prop->location))
        return prop->location.type == 1 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    *out = BLOCK;
    return CUDA_SUCCESS;
}

/* ---- physical memory ---- */

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
    ENTER(cuMemCreate);
    if (!out || !prop || prop->type != 1 || flags != 0 || size == 0 || size % BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid_location(&prop->location))
        return prop->location.type == 1 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    bool on_device = prop->location.type == 1;
    unsigned card = cu.devices[on_device ? prop->location.id : 0].card;
    if (!card_at(card)->vmm_capable || prop->requestedHandleTypes & ~1) /* descriptors only: a card of no fabric */
        return CUDA_ERROR_NOT_SUPPORTED;
    if (card_lost(card))
        return CUDA_ERROR_UNKNOWN;
    if (on_device && !memory_charge(card, cu.slot, (struct charge){size, size, 1, 0, 0}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t extent;
    struct physical *p = extent_take(size, &extent) ? handle_new(K_PHYSICAL) : NULL;
    if (!p) {
        if (on_device)
            memory_release(card, cu.slot, (struct charge){size, size, 1, 0, 0});
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p->props = *prop;
    p->card = card;
    p->size = size;
    p->extent = extent;
    p->references = 1;
    p->on_device = on_device;
    p->import_fd = -1;
    *out = (CUmemGenericAllocationHandle)handle_of(K_PHYSICAL, p);
    return CUDA_SUCCESS;
}

void physical_end_if_unused(struct physical *p, CUmemGenericAllocationHandle handle)
{
    if (p->references || p->mappings)
        return;
    if (p->team) {
        multicast_end(p);
        handle_drop(K_PHYSICAL, (void *)handle);
        return;
    }
    bool others = p->share && share_leave(p->share, cu.slot); /* then its bytes stay where they lie, and somebody else pays */
    if (p->imported) {
        munmap(p->import_data, p->size);
        close(p->import_fd);
    } else if (!others) {
        extent_give(p->extent, p->size);
    }
    if (p->on_device)
        memory_release(p->card, cu.slot, (struct charge){others ? 0 : p->size, p->size, 1, 0, 0});
    handle_drop(K_PHYSICAL, (void *)handle);
}

struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    struct physical *p = handle_get(K_PHYSICAL, (void *)handle);
    return p && p->references ? p : NULL;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER(cuMemRelease);
    vmm_lock();
    struct physical *p = physical_of(handle);
    if (p) {
        p->references--;
        physical_end_if_unused(p, handle);
    }
    vmm_unlock();
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    ENTER(cuMemRetainAllocationHandle);
    struct block b;
    if (!out || !heap_find((uint64_t)address, &b) || b.kind != M_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    vmm_lock();
    struct physical *p = handle_get(K_PHYSICAL, b.owner);
    if (p)
        p->references++;
    vmm_unlock();
    *out = (CUmemGenericAllocationHandle)b.owner;
    return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle)
{
    ENTER(cuMemGetAllocationPropertiesFromHandle);
    struct physical *p = physical_of(handle);
    if (!prop || !p || p->team)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = p->props;
    return CUDA_SUCCESS;
}

/* ---- address ranges ---- */

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr wish, unsigned long long flags)
{
    ENTER(cuMemAddressReserve);
    if (!out || size == 0 || size % BLOCK || flags != 0 || (alignment & (alignment - 1)) || size > 1ull << 46)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t align = alignment > BLOCK ? alignment : BLOCK;
    char *at = mmap((void *)(wish % align ? 0 : wish), size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t address = ((uint64_t)at + align - 1) & ~(align - 1);
    if (address > (uint64_t)at)
        munmap(at, address - (uint64_t)at);
    munmap((void *)(address + size), (uint64_t)at + size + align - (address + size));
    if (!heap_enter((struct block){.address = address, .size = size, .kind = M_RESERVED})) {
        munmap((void *)address, size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *out = address;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    ENTER(cuMemAddressFree);
    struct block b;
    if (!heap_find(address, &b) || b.kind != M_RESERVED || b.address != address || b.size != size)
        return CUDA_ERROR_INVALID_VALUE; /* a range with a mapping in it is several records, so it does not match */
    heap_leave(address, M_RESERVED, &b);
    munmap((void *)address, size);
    return CUDA_SUCCESS;
}

/* ---- mapping: a reserved record is cut around the mapped part, and joined again when that goes ---- */

static void enter_rest(uint64_t address, uint64_t size)
{
    if (size)
        heap_enter((struct block){.address = address, .size = size, .kind = M_RESERVED});
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ENTER(cuMemMap);
    struct block b;
    if (size == 0 || size % BLOCK || address % BLOCK || offset != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult complete = multicast_await(handle);
    if (complete)
        return complete;
    vmm_lock();
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    struct physical *p = physical_of(handle);
    if (p && size <= p->size && heap_covers(address, size, &b)) {
        rc = b.kind == M_MAPPED ? CUDA_ERROR_ALREADY_MAPPED : CUDA_ERROR_INVALID_VALUE;
        if (b.kind == M_RESERVED && heap_leave(b.address, M_RESERVED, &b)) {
            enter_rest(b.address, address - b.address);
            enter_rest(address + size, b.address + b.size - address - size);
            struct block mapped = {.address = address, .size = size, .kind = M_MAPPED, .card = p->card, .owner = (void *)handle,
                                   .data = p->team ? NULL : p->imported ? p->import_data : extent_data(p->extent)};
            rc = heap_enter(mapped) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
            p->mappings += rc == CUDA_SUCCESS;
        }
    }
    vmm_unlock();
    return rc;
}

/* physicals mutex held: the reserved neighbours and the gap become one record again */
static void rejoin(uint64_t address, uint64_t size)
{
    struct block b;
    if (heap_find(address - 1, &b) && b.kind == M_RESERVED && heap_leave(b.address, M_RESERVED, &b)) {
        size += address - b.address;
        address = b.address;
    }
    if (heap_find(address + size, &b) && b.kind == M_RESERVED && heap_leave(b.address, M_RESERVED, &b))
        size += b.size;
    enter_rest(address, size);
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    ENTER(cuMemUnmap);
    struct block b;
    if (size == 0 || size % BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    vmm_lock();
    bool whole = true;
    for (uint64_t at = address; at < address + size && whole; at += b.size)
        whole = heap_find(at, &b) && b.kind == M_MAPPED && b.address == at && at + b.size <= address + size;
    for (uint64_t at = address; whole && at < address + size; at += b.size) {
        heap_leave(at, M_MAPPED, &b);
        struct physical *p = handle_get(K_PHYSICAL, b.owner);
        if (p) {
            p->mappings--;
            physical_end_if_unused(p, (CUmemGenericAllocationHandle)b.owner);
        }
    }
    if (whole)
        rejoin(address, size);
    vmm_unlock();
    return whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* A card reaches its own memory, the host's, and that of its peers. */
static bool reaches(const CUmemLocation *from, const struct block *b)
{
    const struct physical *p = handle_get(K_PHYSICAL, b->owner);
    const struct device *d = &cu.devices[from->type == 1 ? from->id : 0];
    return from->type != 1 || !p || !p->on_device || d->card == b->card || (d->lane == 0 && cards_peers(d->card, b->card));
}

static void set_access(struct block *b, void *arg)
{
    b->access = *(const int *)arg;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    ENTER(cuMemSetAccess);
    if (!desc || count == 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!valid_location(&desc[i].location) || (desc[i].flags != 0 && desc[i].flags != 1 && desc[i].flags != 3))
            return desc[i].location.type == 1 ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
    struct block b;
    for (uint64_t at = address; at < address + size; at = b.address + b.size)
        if (!heap_find(at, &b) || b.kind != M_MAPPED)
            return CUDA_ERROR_INVALID_VALUE;
        else
            for (size_t i = 0; i < count; i++)
                if (desc[i].flags != 0 && !reaches(&desc[i].location, &b))
                    return CUDA_ERROR_INVALID_DEVICE;
    int flags = desc[0].flags;
    for (uint64_t at = address; at < address + size; at = b.address + b.size) {
        heap_find(at, &b);
        heap_change(at, set_access, &flags);
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    ENTER(cuMemGetAccess);
    struct block b;
    if (!flags || !location || !valid_location(location) || !heap_find(address, &b) || b.kind != M_MAPPED)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = (unsigned long long)b.access;
    return CUDA_SUCCESS;
}

/* ---- sharing by file descriptor: a small note of where the exporter's memory lies, in a memory file of its own ---- */

struct note { char magic[16]; uint64_t size; uint32_t pid; int32_t arena; uint64_t extent; CUmemAllocationProp props; uint32_t card, share; uint64_t share_id; };

EXPORT CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
    ENTER(cuMemExportToShareableHandle);
    struct physical *p = physical_of(handle);
    if (!out || !p || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (p->team)
        return multicast_export(p, out);
    if (!(p->props.requestedHandleTypes & 1) || p->imported)
        return CUDA_ERROR_INVALID_VALUE;
    vmm_lock();
    if (p->on_device && !p->share)
        p->share = share_new(p->card, cu.slot, p->size, &p->share_id);
    vmm_unlock();
    if (p->on_device && !p->share)
        return CUDA_ERROR_OPERATING_SYSTEM;
    struct note n = {"pumice-shared", p->size, (uint32_t)getpid(), arena_descriptor(), p->extent, p->props, p->card, p->share, p->share_id};
    int fd = memory_file("pumice-shared-memory", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &n, sizeof n) != (ssize_t)sizeof n) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *shared, int type)
{
    ENTER(cuMemImportFromShareableHandle);
    struct note n;
    char path[64];
    int fd = (int)(intptr_t)shared;
    if (!out || type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (pread(fd, &n, sizeof n, 0) != (ssize_t)sizeof n || memcmp(n.magic, "pumice-shared", 14) != 0)
        return multicast_import(out, fd);
    if (n.share && !share_join(n.share, n.share_id, cu.slot))
        return CUDA_ERROR_INVALID_VALUE; /* nobody holds it any more: here descriptors keep nothing alive */
    snprintf(path, sizeof path, "/proc/%u/fd/%d", n.pid, n.arena);
    int arena = open(path, O_RDWR | O_CLOEXEC);
    void *data = arena < 0 ? MAP_FAILED
                           : mmap(NULL, n.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena, (off_t)n.extent);
    struct physical *p = data == MAP_FAILED ? NULL : handle_new(K_PHYSICAL);
    if (!p) {
        if (arena >= 0)
            close(arena);
        if (n.share && !share_leave(n.share, cu.slot))
            memory_release(n.card, cu.slot, (struct charge){n.size, 0, 0, 0, 0});
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (n.share) /* what it holds is counted, its bytes are paid once */
        memory_charge(n.card, cu.slot, (struct charge){0, n.size, 1, 0, 0});
    p->on_device = n.share != 0;
    p->share = n.share;
    p->share_id = n.share_id;
    p->props = n.props;
    p->card = n.card;
    p->size = n.size;
    p->references = 1;
    p->imported = true;
    p->import_fd = arena;
    p->import_data = data;
    *out = (CUmemGenericAllocationHandle)handle_of(K_PHYSICAL, p);
    return CUDA_SUCCESS;
}
