/*
 * Virtual memory management (HAMi-core src/cuda): a handle is physical memory. It is booked once, on the device that its
 * properties name and never on that of the current context, and given back when it is neither referred to nor mapped, here and by
 * whoever imported it (services/shared_allocation.h).
 */
#include "intercepts/entries.h"

#include "services/bindings.h"
#include "services/process_state.h"
#include "services/shared_allocation.h"

CUresult cuMemCreate(CUmemHandle *handle, size_t bytes, const struct mem_prop *prop, uint64_t flags)
{
    int device = handle != NULL && prop != NULL && bytes != 0 && process_serves() ? process_location(&prop->location) : -1;
    if (device < 0)
        return CUDA(cuMemCreate(handle, bytes, prop, flags));
    return BOOKED(device, bytes, RECORD_HANDLE, *handle, CUDA(cuMemCreate(handle, bytes, prop, flags)));
}

/*
 * Release and unmap let the driver go first: the handle's number cannot be given out again before it is free, and a count
 * that is late errs on the safe side.
 */
CUresult cuMemRelease(CUmemHandle handle)
{
    if (!process_serves())
        return CUDA(cuMemRelease(handle));
    struct record ended, before;
    bool known = records_find(RECORD_HANDLE, handle, &before), last = known && before.references == 1 && before.mappings == 0;
    int device = known ? before.device : -1;
    underway_begin(device);
    /* The last hold: take the record first, for the number may be reused the moment the driver is done. */
    bool taken = last && records_count(RECORD_HANDLE, handle, -1, 0, &ended);
    CUresult rc = CUDA(cuMemRelease(handle));
    if (taken && rc != CUDA_SUCCESS)
        records_insert(&before);
    else if (taken || (rc == CUDA_SUCCESS && records_count(RECORD_HANDLE, handle, -1, 0, &ended)))
        process_gone(&ended);
    underway_end(device);
    return rc;
}

void exported(const void *os_handle, CUmemHandle handle, int type)
{
    if (type == HANDLE_TYPE_DESCRIPTOR)
        shared_allocation_exported_descriptor(RECORD_HANDLE, handle, *(const int *)os_handle);
    else if (type == HANDLE_TYPE_FABRIC)
        shared_allocation_exported_bytes(RECORD_HANDLE, handle, os_handle);
}

static uint32_t shared_allocation_of(const void *os_handle, int type, struct shared_allocation *what)
{
    if (type == HANDLE_TYPE_DESCRIPTOR)
        return shared_allocation_of_descriptor((int)(intptr_t)os_handle, what);
    return type == HANDLE_TYPE_FABRIC && os_handle != NULL ? shared_allocation_of_bytes(os_handle, what) : 0;
}

/* Whose memory nobody knows: it is charged when it is mapped, for only then its size is told. */
static int device_of_handle(CUmemHandle handle)
{
    struct mem_prop prop;
    bool told = CUDA(cuMemGetAllocationPropertiesFromHandle(&prop, handle)) == CUDA_SUCCESS;
    return told ? process_location(&prop.location) : -1;
}

/* It is held before the driver is asked: whoever exported it may let go at any moment. */
CUresult cuMemImportFromShareableHandle(CUmemHandle *handle, void *os_handle, int type)
{
    if (!process_serves())
        return CUDA(cuMemImportFromShareableHandle(handle, os_handle, type));
    struct shared_allocation what = {.device = -1};
    uint32_t shared_allocation = shared_allocation_of(os_handle, type, &what);
    CUresult rc = CUDA(cuMemImportFromShareableHandle(handle, os_handle, type));
    struct record ended, imported = {.bytes = what.bytes, .device = what.device, .kind = RECORD_HANDLE, .charged = shared_allocation != 0,
                                     .references = 1, .shared_allocation = shared_allocation};
    bool known = rc == CUDA_SUCCESS && records_find(RECORD_HANDLE, *handle, &ended); /* its own export came back under its own number */
    if (known)
        records_count(RECORD_HANDLE, *handle, 1, 0, &ended);
    if (shared_allocation != 0 && (known || rc != CUDA_SUCCESS))
        shared_allocation_let_go(shared_allocation);
    if (rc == CUDA_SUCCESS && !known) {
        imported.key = *handle;
        if (shared_allocation == 0)
            imported.device = (int16_t)device_of_handle(*handle);
        records_insert(&imported);
    }
    return rc;
}

/* What was imported from nobody whom we know is this container's from its first mapping on. */
static bool charged_by_now(CUmemHandle handle, size_t bytes)
{
    struct record record;
    if (!records_find(RECORD_HANDLE, handle, &record) || record.charged || record.device < 0)
        return true;
    uint64_t booked = blocks_bytes(bytes);
    if (!process_reserve(record.device, booked))
        return false;
    if (!records_charge(RECORD_HANDLE, handle, booked))
        process_release(record.device, booked);
    return true;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle, uint64_t flags)
{
    if (process_serves() && !charged_by_now(handle, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult rc = CUDA(cuMemMap(address, bytes, offset, handle, flags));
    if (rc != CUDA_SUCCESS || !process_serves())
        return rc;
    struct record ended, mapping = {.key = address, .bytes = bytes, .owner = handle, .kind = RECORD_MAPPING, .references = 1};
    if (records_insert(&mapping))
        records_count(RECORD_HANDLE, handle, 0, 1, &ended);
    return rc;
}

static int device_at(CUdeviceptr address)
{
    struct record mapping, handle;
    bool known = process_serves() && records_find(RECORD_MAPPING, address, &mapping) && records_find(RECORD_HANDLE, mapping.owner, &handle);
    return known ? handle.device : -1;
}

/* One call may undo several mappings that lie side by side. */
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    struct record mapping, ended;
    int device = device_at(address);
    underway_begin(device);
    CUresult rc = CUDA(cuMemUnmap(address, bytes));
    bool undone = rc == CUDA_SUCCESS && process_serves();
    for (CUdeviceptr at = address; undone && at < address + bytes && records_remove(RECORD_MAPPING, at, &mapping); at += mapping.bytes)
        if (records_count(RECORD_HANDLE, mapping.owner, 0, -1, &ended))
            process_gone(&ended);
    underway_end(device);
    return rc;
}

/*
 * Memory that another process allocated: by IPC handle and by pointer into a pool. Whoever is told by the table of shared allocations pays together
 * with the exporter (services/shared_allocation.h); who is not pays for himself, also for what comes out of another's pool.
 */
/* A handle stands for the whole allocation, wherever in it the pointer leads. */
static CUdeviceptr base_of(CUdeviceptr pointer)
{
    CUdeviceptr base = pointer;
    bool told = CUDA(cuMemGetAddressRange_v2(&base, NULL, pointer)) == CUDA_SUCCESS;
    return told ? base : pointer;
}

void ipc_exported(const void *handle, CUdeviceptr pointer)
{
    shared_allocation_exported_bytes(RECORD_LINEAR, base_of(pointer), handle);
}

static int device_of_pointer(CUdeviceptr pointer)
{
    int ordinal = -1;
    bool told = CUDA(cuPointerGetAttribute(&ordinal, POINTER_DEVICE_ORDINAL, pointer)) == CUDA_SUCCESS;
    return told ? process_device(ordinal) : process_current_device();
}

static uint64_t whole_blocks(CUdeviceptr pointer)
{
    size_t bytes = 0;
    if (CUDA(cuMemGetAddressRange_v2(NULL, &bytes, pointer)) != CUDA_SUCCESS)
        bytes = 1;
    return blocks_bytes(bytes);
}

/* False: there is no room for what others let go of. */
static bool charged(CUdeviceptr pointer)
{
    int device = device_of_pointer(pointer);
    uint64_t bytes = whole_blocks(pointer);
    if (device < 0)
        return true;
    if (!process_reserve(device, bytes))
        return false;
    process_note(RECORD_LINEAR, pointer, device, bytes, true);
    return true;
}

CUresult ipc_opened(CUresult (*open)(CUdeviceptr *, struct ipc_handle, unsigned), CUdeviceptr *pointer,
                       struct ipc_handle handle, unsigned flags)
{
    if (!process_serves())
        return INSIDE(open(pointer, handle, flags));
    struct shared_allocation what;
    uint32_t shared_allocation = shared_allocation_of_bytes(&handle, &what); /* held before the driver is asked: its exporter may let go at any moment */
    CUresult rc = INSIDE(open(pointer, handle, flags));
    if (rc != CUDA_SUCCESS) {
        if (shared_allocation != 0)
            shared_allocation_let_go(shared_allocation);
    } else if (shared_allocation != 0) {
        struct record import = {.key = *pointer, .bytes = what.bytes, .owner = process_current_context(), .device = what.device,
                                .kind = RECORD_LINEAR, .charged = 1, .references = 1, .shared_allocation = shared_allocation};
        struct record present;
        if (records_find(RECORD_LINEAR, *pointer, &present)) { /* drivers may answer a second time with the same address */
            shared_allocation_let_go(shared_allocation);
            records_join(&present);
        } else {
            records_insert(&import);
        }
    } else if (!charged(*pointer)) {
        CUDA(cuIpcCloseMemHandle(*pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    if (!process_serves())
        return CUDA(cuIpcCloseMemHandle(pointer));
    struct parting parting = process_part(RECORD_LINEAR, pointer);
    CUresult rc = CUDA(cuIpcCloseMemHandle(pointer));
    if (rc != CUDA_SUCCESS || parting.record.references <= 1)
        return process_parted(rc, &parting);
    parting.record.references--; /* it was opened more than once */
    records_insert(&parting.record);
    underway_end(parting.record.device);
    return rc;
}

CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemPool pool, struct ipc_handle *data)
{
    CUresult rc = CUDA(cuMemPoolImportPointer(pointer, pool, data));
    if (rc == CUDA_SUCCESS && process_serves() && !charged(*pointer)) {
        CUDA(cuMemFree_v2(*pointer));
        rc = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return rc;
}

/*
 * What holds device memory that was allocated otherwise: multicast objects, memory of other interfaces, and what is refused, for nobody
 * would tell when it lets go.
 */
/* A multicast object is a handle like those of memory, and takes none (services/bindings.h). */
void multicast_created(CUmemHandle multicast)
{
    records_insert(&(struct record){.key = multicast, .device = -1, .kind = RECORD_HANDLE, .references = 1});
}

/* The device whose part of the object it is: the memory's own, where the call does not say. */
static CUdevice ordinal_of_handle(CUmemHandle memory)
{
    struct record record;
    bool ours = records_find(RECORD_HANDLE, memory, &record) && record.device >= 0;
    return ours ? process_state.ordinal_of[record.device] : -1;
}

void multicast_bound(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle memory)
{
    bindings_made(multicast, device >= 0 ? device : ordinal_of_handle(memory), at, memory);
}

void multicast_bound_at(CUmemHandle multicast, CUdevice device, size_t at, CUdeviceptr address)
{
    CUmemHandle memory;
    if (CUDA(cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)address)) != CUDA_SUCCESS)
        return;
    multicast_bound(multicast, device, at, memory);
    CUDA(cuMemRelease(memory));
}

/* Memory of Vulkan, DMA buffers and the like: whoever made it is not limited here, so who imports it pays. */
CUresult cuImportExternalMemory(CUexternalMemory *memory, const struct external_memory *described)
{
    int device = memory != NULL && described != NULL && process_serves() ? process_current_device() : -1;
    if (device < 0)
        return CUDA(cuImportExternalMemory(memory, described));
    return BOOKED(device, blocks_bytes(described->size), RECORD_EXTERNAL, *memory, CUDA(cuImportExternalMemory(memory, described)));
}

/* ---- refused where there is a limit ------------------------------------------------------------------------------ */

bool any_memory_limit(void)
{
    bool any = false;
    for (int device = 0; process_serves() && !any && device < REGION_DEVICES; device++)
        any = memory_limit(&process_state.map, device) != 0;
    return any;
}

/* Memory that is mapped into a sparse array lives on without its handle. */
bool maps_memory(const struct array_mapping *list, unsigned count)
{
    for (unsigned i = 0; list != NULL && i < count; i++)
        if (list[i].operation == OPERATION_MAP)
            return true;
    return false;
}
