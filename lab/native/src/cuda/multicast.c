/* Multicast objects: addresses at which a switch reaches the memory of several cards at once. Here they hold what is bound to them, as on
 * a card; nothing is written through them, for that is done by kernels.
 *
 * An object is a handle among those of physical memory, and takes none itself. Which cards are of the team is in a memory file
 * that goes along where the object is exported; what a process bound is that process's, and let go with the object or the process. */
#define _GNU_SOURCE
#include "old_calls.h"
#include "vmm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POLL_NS 200000u
enum { MOST_OF_A_HANDLE = 1 }; /* descriptors; there is no fabric */

struct team {
    char magic[16];
    uint64_t size;
    uint32_t wanted;
    uint32_t handle_types;
    uint32_t cards; /* those that were added, as bits */
};
static const char MAGIC[16] = "pumice-team";

struct binding {
    struct binding *next;
    CUmemGenericAllocationHandle memory;
    unsigned card;
    uint64_t at, size;
};

typedef struct { unsigned int numDevices; size_t size; unsigned long long handleTypes, flags; } CUmulticastObjectProp;

bool multicast_device(CUdevice device)
{
    const struct device *d = &cu.devices[device];
    return d->lane == 0 && card_at(d->card)->cc_major >= 9 && card_at(d->card)->vmm_capable && card_on_switch(d->card);
}

static bool any_device(void)
{
    bool any = false;
    for (int i = 0; i < cu.device_count; i++)
        any |= multicast_device(i);
    return any;
}

static CUresult check(const CUmulticastObjectProp *prop)
{
    if (!prop || prop->numDevices == 0 || prop->numDevices > the_machine->cards || prop->flags != 0 || prop->size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return any_device() && !(prop->handleTypes & ~(unsigned long long)MOST_OF_A_HANDLE) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Both granularities are taken to be that of memory. */
EXPORT CUresult cuMulticastGetGranularity(size_t *out, const CUmulticastObjectProp *prop, int option)
{
    ENTER(cuMulticastGetGranularity);
    CUresult rc = out && (option == 0 || option == 1) ? check(prop) : CUDA_ERROR_INVALID_VALUE;
    if (rc == CUDA_SUCCESS)
        *out = BLOCK;
    return rc;
}

/* ---- the object ---- */

static struct team *team_map(int fd)
{
    void *data = mmap(NULL, sizeof(struct team), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return data == MAP_FAILED ? NULL : data;
}

static CUresult adopt(CUmemGenericAllocationHandle *out, int fd, uint64_t size)
{
    struct team *team = team_map(fd);
    struct physical *p = team ? handle_new(K_PHYSICAL) : NULL;
    if (!p) {
        if (team)
            munmap(team, sizeof *team);
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    p->team = team;
    p->import_fd = fd;
    p->size = size;
    p->references = 1;
    *out = (CUmemGenericAllocationHandle)handle_of(K_PHYSICAL, p);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop)
{
    ENTER(cuMulticastCreate);
    CUresult rc = out ? check(prop) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    if (prop->size % BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    struct team team = {.size = prop->size, .wanted = prop->numDevices, .handle_types = (uint32_t)prop->handleTypes};
    memcpy(team.magic, MAGIC, sizeof MAGIC);
    int fd = memory_file("pumice-multicast", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &team, sizeof team) != (ssize_t)sizeof team) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return adopt(out, fd, prop->size);
}

CUresult multicast_export(const struct physical *p, int *fd)
{
    if (!(RELAXED(&p->team->handle_types) & 1))
        return CUDA_ERROR_INVALID_VALUE;
    *fd = fcntl(p->import_fd, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

CUresult multicast_import(CUmemGenericAllocationHandle *out, int fd)
{
    struct team team;
    if (pread(fd, &team, sizeof team, 0) != (ssize_t)sizeof team || memcmp(team.magic, MAGIC, sizeof MAGIC) != 0 || team.size == 0 ||
        team.size % BLOCK)
        return CUDA_ERROR_INVALID_VALUE;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return own < 0 ? CUDA_ERROR_OPERATING_SYSTEM : adopt(out, own, team.size);
}

static void unbind(struct binding **place)
{
    struct binding *b = *place;
    struct physical *memory = handle_get(K_PHYSICAL, (void *)b->memory);
    *place = b->next;
    if (memory) {
        memory->mappings--;
        physical_end_if_unused(memory, b->memory);
    }
    free(b);
}

void multicast_end(struct physical *p)
{
    while (p->bindings)
        unbind(&p->bindings);
    munmap(p->team, sizeof *p->team);
    close(p->import_fd);
}

/* ---- the team ---- */

static bool is_of(const struct physical *p, unsigned card)
{
    return LOAD(&p->team->cards) >> card & 1;
}

EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
    ENTER_DEVICE(cuMulticastAddDevice, device);
    if (!multicast_device(device))
        return CUDA_ERROR_NOT_SUPPORTED;
    vmm_lock();
    struct physical *p = physical_of(handle);
    CUresult rc = p && p->team ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    uint32_t own = 1u << cu.devices[device].card, before = rc ? 0 : LOAD(&p->team->cards);
    do {
        if (rc == CUDA_SUCCESS && (before & own || (unsigned)__builtin_popcount(before) >= RELAXED(&p->team->wanted)))
            rc = CUDA_ERROR_INVALID_VALUE;
    } while (rc == CUDA_SUCCESS &&
             !__atomic_compare_exchange_n(&p->team->cards, &before, before | own, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    vmm_unlock();
    return rc;
}

CUresult multicast_await(CUmemGenericAllocationHandle handle)
{
    vmm_lock();
    struct physical *p = physical_of(handle);
    const struct team *team = p ? p->team : NULL;
    if (team)
        p->references++; /* meanwhile */
    vmm_unlock();
    if (!team)
        return p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    while ((unsigned)__builtin_popcount(LOAD(&team->cards)) < RELAXED(&team->wanted))
        machine_sleep_until(machine_now() + POLL_NS);
    vmm_lock();
    p->references--;
    physical_end_if_unused(p, handle);
    vmm_unlock();
    return CUDA_SUCCESS;
}

/* ---- bindings ---- */

struct wish { CUmemGenericAllocationHandle memory; uint64_t at, offset, size; int device; }; /* device -1: the memory's own */

static bool free_at(const struct physical *p, unsigned card, uint64_t at, uint64_t size)
{
    for (const struct binding *b = p->bindings; b; b = b->next)
        if (b->card == card && at < b->at + b->size && b->at < at + size)
            return false;
    return true;
}

static bool inside(uint64_t at, uint64_t size, uint64_t all)
{
    return at % BLOCK == 0 && size % BLOCK == 0 && size > 0 && at <= all && size <= all - at;
}

static CUresult bind_locked(struct physical *p, const struct wish *w)
{
    struct physical *memory = physical_of(w->memory);
    if (!memory) /* a mapping alone may hold it */
        memory = handle_get(K_PHYSICAL, (void *)w->memory);
    if (!p || !p->team || !memory || memory->team || !memory->on_device || !inside(w->at, w->size, p->size) ||
        !inside(w->offset, w->size, memory->size))
        return CUDA_ERROR_INVALID_VALUE;
    bool theirs = w->device < 0 || cu.devices[w->device].card == memory->card;
    bool shareable = memory->props.requestedHandleTypes || !RELAXED(&p->team->handle_types);
    if (!theirs || !shareable || !is_of(p, memory->card) || !free_at(p, memory->card, w->at, w->size))
        return CUDA_ERROR_INVALID_VALUE;
    struct binding *b = malloc(sizeof *b);
    if (!b)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *b = (struct binding){p->bindings, w->memory, memory->card, w->at, w->size};
    p->bindings = b;
    memory->mappings++;
    return CUDA_SUCCESS;
}

static CUresult bind(CUmemGenericAllocationHandle handle, const struct wish *w, unsigned long long flags)
{
    CUresult rc = flags == 0 ? multicast_await(handle) : CUDA_ERROR_INVALID_VALUE;
    if (rc)
        return rc;
    vmm_lock();
    rc = bind_locked(physical_of(handle), w);
    vmm_unlock();
    return rc;
}

EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t at, CUmemGenericAllocationHandle memory, size_t offset,
                                   size_t size, unsigned long long flags)
{
    ENTER(cuMulticastBindMem);
    return bind(handle, &(struct wish){memory, at, offset, size, -1}, flags);
}

EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t at,
                                      CUmemGenericAllocationHandle memory, size_t offset, size_t size, unsigned long long flags)
{
    ENTER_DEVICE(cuMulticastBindMem_v2, device);
    return bind(handle, &(struct wish){memory, at, offset, size, device}, flags);
}

/* By an address at which the memory is mapped; what pools gave is not bound here. */
static CUresult bind_address(CUmemGenericAllocationHandle handle, int device, size_t at, CUdeviceptr address, size_t size,
                             unsigned long long flags)
{
    struct block b;
    if (!heap_find(address, &b) || b.kind != M_MAPPED)
        return b.kind == M_POOL ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    struct wish w = {(CUmemGenericAllocationHandle)b.owner, at, address - b.address, size, device};
    return size <= b.size - (address - b.address) ? bind(handle, &w, flags) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle handle, size_t at, CUdeviceptr address, size_t size,
                                    unsigned long long flags)
{
    ENTER(cuMulticastBindAddr);
    return bind_address(handle, -1, at, address, size, flags);
}

EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle handle, CUdevice device, size_t at, CUdeviceptr address,
                                       size_t size, unsigned long long flags)
{
    ENTER_DEVICE(cuMulticastBindAddr_v2, device);
    return bind_address(handle, device, at, address, size, flags);
}

EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t at, size_t size)
{
    ENTER_DEVICE(cuMulticastUnbind, device);
    vmm_lock();
    struct physical *p = physical_of(handle);
    CUresult rc = CUDA_ERROR_INVALID_VALUE;
    for (struct binding **b = p && p->team ? &p->bindings : NULL; b && *b; b = &(*b)->next)
        if ((*b)->card == cu.devices[device].card && (*b)->at == at && (*b)->size == size) {
            unbind(b);
            rc = CUDA_SUCCESS;
            break;
        }
    vmm_unlock();
    return rc;
}
