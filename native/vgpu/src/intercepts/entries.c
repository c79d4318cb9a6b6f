/*
 * The entries that are made of a shape: what is done around the driver's call is the same for all versions and stream flavours of an entry,
 * and for its relatives. hooks.def says which entry has which shape. A shape is given the entry's name, its head and the call, and speaks
 * of the parameters by their names in that list; what it asks is in the services or in a file beside this one.
 */
#include "intercepts/entries.h"

#include "core/numbers.h"
#include "services/bindings.h"
#include "services/contexts.h"
#include "services/graph_memory.h"
#include "services/launching.h"
#include "services/module_memory.h"
#include "services/pools.h"

#define PER_THREAD(entry) (__builtin_strcmp(#entry + sizeof #entry - 6, "_ptsz") == 0)

#define ENTRY_OWN(entry, head, call) /* written out beside this file */

#define MADE(head, ...) \
    head \
    { \
        __VA_ARGS__ \
    }

/* The call comes first; what it changed is noted. */
#define NOTED(head, call, note) MADE(head, \
        CUresult rc = call; \
        if (rc == CUDA_SUCCESS && process_serves()) \
            note; \
        return rc;)
#define REFUSED(head, call, refuse) MADE(head, \
        return refuse ? CUDA_ERROR_NOT_SUPPORTED : call;)
#define FREED(head, call, kind, key) MADE(head, \
        if (!process_serves()) \
            return call; \
        struct parting parting = process_part(kind, (uint64_t)(uintptr_t)(key)); \
        return process_parted(call, &parting);)

/* ---- queries ---- */

#define ENTRY_PROC_ADDRESS(entry, head, call) MADE(head, \
        CUresult rc = call; \
        if (rc == CUDA_SUCCESS && inside_driver == 0 && symbol != NULL && function != NULL && *function != NULL) \
            translate_address(symbol, function, version, flags); \
        return rc;)
#define ENTRY_TOTAL(entry, head, call) NOTED(head, call, *bytes = (__typeof__(*bytes))shown_total(device, *bytes))
#define ENTRY_MEM_INFO(entry, head, call) MADE(head, \
        CUresult rc = call; \
        if (rc == CUDA_SUCCESS && free != NULL && total != NULL && process_serves()) { \
            struct shown shown = shown_memory(*free, *total); \
            *free = (__typeof__(*free))shown.free; \
            *total = (__typeof__(*total))shown.total; \
        } \
        return rc;)
#define ENTRY_POINTER(entry, head, call) NOTED(head, call, show_pointer(1, &attribute, &value, pointer))
#define ENTRY_POINTER_MANY(entry, head, call) NOTED(head, call, show_pointer(count, attributes, values, pointer))
#define ENTRY_NVML_INIT(entry, head, call) MADE(head, \
        return nvml_began(call);)
#define ENTRY_NVML_MEMORY(entry, head, call) MADE(head, \
        nvmlReturn rc = call; \
        if (rc == NVML_SUCCESS && memory != NULL && process_serves()) \
            show_nvml(device, NULL, &memory->total, &memory->free, &memory->used); \
        return rc;)
#define ENTRY_NVML_MEMORY_V2(entry, head, call) MADE(head, \
        nvmlReturn rc = call; \
        if (rc == NVML_SUCCESS && memory != NULL && process_serves()) \
            show_nvml(device, &memory->reserved, &memory->total, &memory->free, &memory->used); \
        return rc;)

/* ---- contexts ---- */

/* The driver gives back before the books do: what a look at both sees meanwhile is nothing that slipped past. */
#define PRIMARY_ENDED(head, call, ended) MADE(head, \
        int index = process_serves() ? process_device(device) : -1; \
        underway_begin(index); \
        CUresult rc = call; \
        if (rc == CUDA_SUCCESS && index >= 0) \
            ended(index); \
        underway_end(index); \
        return rc;)
#define ENTRY_PRIMARY_RELEASE(entry, head, call) PRIMARY_ENDED(head, call, contexts_primary_released)
#define ENTRY_PRIMARY_RESET(entry, head, call) PRIMARY_ENDED(head, call, contexts_primary_reset)
#define ENTRY_CONTEXT(entry, head, call) MADE(head, \
        struct context_request request; \
        if (!contexts_begin(&request, process_serves() ? process_device(device) : -1)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        return context_created(call, context, &request);)
#define CONTEXT_ENDED(head, call, over) MADE(head, \
        bool serves = process_serves(); \
        int index = serves ? contexts_ending(context) : -1; \
        CUresult rc = call; \
        if (serves && rc == CUDA_SUCCESS && (over)) \
            contexts_destroyed(context); \
        underway_end(index); \
        return rc;)
#define ENTRY_CONTEXT_END(entry, head, call) CONTEXT_ENDED(head, call, true)
#define ENTRY_CONTEXT_DETACH(entry, head, call) CONTEXT_ENDED(head, call, context_is_over(context)) /* with its last user it ends */

/* ---- linear memory and arrays ---- */

/* expected: bytes, 0 where the call goes to the driver as it is; actual: what they came to. */
#define LINEAR(head, call, type, given, expected, actual, shares) MADE(head, \
        struct block_request request; \
        int index = linear_device(pointer, expected); \
        if (index < 0) \
            return call; \
        if (!blocks_reserve(&request, index, type, expected, shares)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        CUresult rc = given; \
        return linear_settled(&request, rc, *pointer, rc == CUDA_SUCCESS ? actual : expected);)
#define ENTRY_LINEAR(entry, head, call) LINEAR(head, call, MEMORY_DATA, call, bytes, bytes, true)
#define ENTRY_LINEAR_V2(entry, head, call) \
    LINEAR(head, call, linear_type(index), linear_or_beyond(&request, linear_bursts(&request) ? CUDA_ERROR_OUT_OF_MEMORY : call, pointer, bytes), \
           bytes, bytes, true)
#define ENTRY_MANAGED(entry, head, call) LINEAR(head, call, linear_type(index), call, bytes, bytes, false) /* in full: it can become resident at any moment */
#define ENTRY_PITCHED(entry, head, call) \
    LINEAR(head, call, MEMORY_DATA, call, pitch == NULL ? 0 : pitched_bytes(width, height), mul_u64(*pitch, height), true)
#define ARRAY(head, call, levels, ...) MADE(head, \
        if (descriptor == NULL) \
            return call; \
        struct array3d_descriptor described = {.width = descriptor->width, .height = descriptor->height, .format = descriptor->format, \
                                               .channels = descriptor->channels, __VA_ARGS__}; \
        uint64_t bytes; \
        int index = array_device(array, &described, levels, &bytes); \
        return index < 0 ? call : BOOKED(index, bytes, RECORD_ARRAY, *array, call);)
#define ENTRY_ARRAY_2D(entry, head, call) ARRAY(head, call, 1, .depth = 0)
#define ENTRY_ARRAY_3D(entry, head, call) ARRAY(head, call, 1, .depth = descriptor->depth, .flags = descriptor->flags)
#define ENTRY_ARRAY_LEVELS(entry, head, call) ARRAY(head, call, levels, .depth = descriptor->depth, .flags = descriptor->flags)
#define ENTRY_FREE_LINEAR(entry, head, call) FREED(head, call, RECORD_LINEAR, pointer) /* blocks of pools have no records, and either way frees both */
#define ENTRY_FREE_ARRAY(entry, head, call) FREED(head, call, RECORD_ARRAY, array)

/* ---- handles, exports and imports ---- */

#define ENTRY_RETAIN_HANDLE(entry, head, call) NOTED(head, call, records_count(RECORD_HANDLE, *handle, 1, 0, &(struct record){0}))
#define ENTRY_EXPORT(entry, head, call) NOTED(head, call, exported(os_handle, handle, type))
#define ENTRY_IPC_EXPORT(entry, head, call) NOTED(head, call, ipc_exported(handle, pointer))
#define ENTRY_IPC_OPEN(entry, head, call) MADE(head, \
        return ipc_opened(real_cuda()->entry, pointer, handle, flags);)
#define ENTRY_FREE_EXTERNAL(entry, head, call) FREED(head, call, RECORD_EXTERNAL, memory)
#define ENTRY_MULTICAST(entry, head, call) NOTED(head, call, multicast_created(*multicast))
#define ENTRY_MULTICAST_MEMORY(entry, head, call) NOTED(head, call, multicast_bound(multicast, -1, at, handle))
#define ENTRY_MULTICAST_MEMORY_V2(entry, head, call) NOTED(head, call, multicast_bound(multicast, device, at, handle))
#define ENTRY_MULTICAST_ADDRESS(entry, head, call) NOTED(head, call, multicast_bound_at(multicast, -1, at, address))
#define ENTRY_MULTICAST_ADDRESS_V2(entry, head, call) NOTED(head, call, multicast_bound_at(multicast, device, at, address))
#define ENTRY_MULTICAST_UNBIND(entry, head, call) NOTED(head, call, bindings_undone(multicast, device, at))
#define ENTRY_MAP_ARRAYS(entry, head, call) REFUSED(head, call, maps_memory(list, count) && any_memory_limit())
#define ENTRY_REFUSED(entry, head, call) REFUSED(head, call, any_memory_limit())
/* A process that was written out keeps its books, and comes back to what they say; on another card nobody would have booked it. */
#define ENTRY_RESTORE(entry, head, call) \
    REFUSED(head, call, arguments != NULL && arguments->pairs != NULL && arguments->pair_count > 0 && any_memory_limit())

/* ---- pools ---- */

#define POOLED(entry, head, call, from) \
    static CUresult call_##entry(CUdeviceptr *pointer, size_t bytes, CUmemPool pool, CUstream stream) \
    { \
        (void)pool; \
        return call; \
    } \
    MADE(head, \
        return pools_allocate(call_##entry, pointer, bytes, from, stream, PER_THREAD(entry));)
#define ENTRY_ASYNC(entry, head, call) POOLED(entry, head, call, NULL)
#define ENTRY_FROM_POOL(entry, head, call) POOLED(entry, head, call, pool)
#define ENTRY_POOL(entry, head, call) NOTED(head, call, pool_created(*pool, props))
#define ENTRY_POOL_CHANGED(entry, head, call) NOTED(head, call, pools_changed(pool))

/* ---- modules ---- */

#define LOADED(head, call, handle, unload, ...) MADE(head, \
        struct module_loading loading; \
        if ((handle) == NULL) \
            return call; \
        if (!module_load_begin(&loading, &(struct module_image)__VA_ARGS__)) \
            return CUDA_ERROR_OUT_OF_MEMORY; \
        return module_loaded(call, handle, &loading, real_cuda()->unload);)
#define ENTRY_MODULE_IN_FILE(entry, head, call) LOADED(head, call, module, cuModuleUnload, {.path = path})
#define ENTRY_MODULE_IN_MEMORY(entry, head, call) LOADED(head, call, module, cuModuleUnload, {.data = image})
#define ENTRY_LIBRARY(entry, head, call) LOADED(head, call, library, cuLibraryUnload, {NULL, NULL})
#define UNLOADED(entry, head, handle) MADE(head, \
        return module_unload(real_cuda()->entry, handle);)
#define ENTRY_MODULE_END(entry, head, call) UNLOADED(entry, head, module)
#define ENTRY_LIBRARY_END(entry, head, call) UNLOADED(entry, head, library)
#define LOOKED_UP(head, call, kind, of, name) MADE(head, \
        struct late_loading loading = late_loading_begin(kind, of, name); \
        return late_loading_end(call, &loading);)
#define ENTRY_LATE_FUNCTION(entry, head, call) LOOKED_UP(head, call, LATE_CODE, module, name)
#define ENTRY_LATE_MODULE(entry, head, call) LOOKED_UP(head, call, LATE_VARIABLES, library, NULL)
#define ENTRY_LATE_GLOBAL(entry, head, call) LOOKED_UP(head, call, LATE_VARIABLES, library, name)
#define ENTRY_LATE_KERNEL(entry, head, call) LOOKED_UP(head, call, LATE_CODE, kernel, NULL)

/* ---- launches ---- */

/* Admit, launch, commit. The answer is that of the driver. */
#define LAUNCHED(shape, stream, per_thread, call) \
    __extension__({ \
        struct launch launch; \
        bool charged = launch_begin(&launch, &(shape), stream, per_thread); \
        CUresult launched = call; \
        charged ? launch_done(&launch, launched) : launched; \
    })
#define KERNEL(entry, head, call, unless, of, x, y, z, block, bytes, queue) MADE(head, \
        if (unless) \
            return call; \
        struct shape shape = {of, (uint64_t)(x) * (uint64_t)(y) * (uint64_t)(z), block, bytes, SHAPE_KERNEL}; \
        return LAUNCHED(shape, queue, PER_THREAD(entry), call);)
/* Of what has its grid and its block in a structure. */
#define DESCRIBED(entry, head, call, unless, of, what) \
    KERNEL(entry, head, call, unless, of, what->grid_x, what->grid_y, what->grid_z, what->block_x * what->block_y * what->block_z, what->shared, what->stream)
#define ENTRY_KERNEL(entry, head, call) \
    KERNEL(entry, head, call, false, function, grid_x, grid_y, grid_z, block_x * block_y * block_z, shared, stream)
#define ENTRY_KERNEL_CONFIGURED(entry, head, call) DESCRIBED(entry, head, call, config == NULL, function, config)
/*
 * One kernel on each of several devices. The parts last about equally long, so the first one is measured and each is charged on the device
 * that is current: the entry does not tell which stream belongs to which device.
 */
#define ENTRY_KERNEL_LIST(entry, head, call) DESCRIBED(entry, head, call, list == NULL || count == 0, list->function, list)
/* The launches of CUDA 3 and before, whose block shape was set on the function. */
#define ENTRY_KERNEL_ONE(entry, head, call) KERNEL(entry, head, call, false, function, 1, 1, 1, 0, 0, NULL)
#define ENTRY_KERNEL_GRID(entry, head, call) KERNEL(entry, head, call, false, function, (unsigned)width, (unsigned)height, 1, 0, 0, NULL)
#define ENTRY_KERNEL_GRID_ASYNC(entry, head, call) KERNEL(entry, head, call, false, function, (unsigned)width, (unsigned)height, 1, 0, 0, stream)

/* Graphs cost the GPU time of the whole, and take the memory of their allocation nodes (services/graph_memory.h). */
#define GRAPH(head, run) MADE(head, \
        bool fits; \
        uint32_t devices = graph_begin(exec, &fits); \
        struct shape shape = {.function = exec, .kind = SHAPE_GRAPH}; \
        (void)shape; \
        return fits ? graph_end(exec, devices, run) : CUDA_ERROR_OUT_OF_MEMORY;)
#define ENTRY_GRAPH_EXEC(entry, head, call) NOTED(head, call, graph_instantiated(exec, graph))
#define ENTRY_GRAPH_UPDATE(entry, head, call) NOTED(head, call, graph_instantiated(&exec, graph))
#define ENTRY_GRAPH_UPLOAD(entry, head, call) GRAPH(head, call)
#define ENTRY_GRAPH_LAUNCH(entry, head, call) GRAPH(head, LAUNCHED(shape, stream, PER_THREAD(entry), call))

#define HOOK(library, name, kind, since, result, parameters, arguments, shape) \
    ENTRY_##shape(name, result name parameters, library(name arguments))
#include "../../hooks.def"
