/* Memory of graphs' allocation nodes: addresses are fixed when the node is made, memory is charged when a graph first runs and
 * kept for the next run until the device's graph memory is trimmed. */
#include "objects.h"

static struct { pthread_mutex_t mutex; uint64_t used, used_high, reserved, reserved_high; } graph_memory[MACHINE_CARDS] =
    {[0 ... MACHINE_CARDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

enum { CHARGED = 1u, IN_USE = 2u };

static uint64_t room_of(const struct block *b)
{
    return (b->size + BLOCK - 1) & ~(BLOCK - 1);
}

CUresult graph_memory_reserve(CUDA_MEM_ALLOC_NODE_PARAMS *params, unsigned card)
{
    uint64_t extent, room = (params->bytesize + BLOCK - 1) & ~(BLOCK - 1);
    if (params->bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->bytesize > 1ull << 50 || !extent_take(room, &extent))
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block b = {.address = extent_address(extent), .size = params->bytesize, .kind = M_POOL, .card = card, .extent = extent,
                      .data = extent_data(extent)};
    if (!heap_enter(b)) {
        extent_give(extent, room);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    params->dptr = b.address;
    return CUDA_SUCCESS;
}

static void set_flags(struct block *b, void *arg)
{
    b->flags = *(unsigned *)arg;
}

CUresult graph_memory_use(CUdeviceptr address)
{
    struct block b;
    if (!heap_find(address, &b) || b.kind != M_POOL || b.owner)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory[b.card].mutex);
    uint64_t room = room_of(&b);
    if (!(b.flags & CHARGED)) {
        if (memory_charge(b.card, cu.slot, (struct charge){room, b.size, 1, 0, 0})) {
            graph_memory[b.card].reserved += room;
            if (graph_memory[b.card].reserved > graph_memory[b.card].reserved_high)
                graph_memory[b.card].reserved_high = graph_memory[b.card].reserved;
        } else {
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    if (rc == CUDA_SUCCESS) {
        if (!(b.flags & IN_USE))
            graph_memory[b.card].used += room;
        if (graph_memory[b.card].used > graph_memory[b.card].used_high)
            graph_memory[b.card].used_high = graph_memory[b.card].used;
        unsigned flags = CHARGED | IN_USE;
        heap_change(address, set_flags, &flags);
    }
    pthread_mutex_unlock(&graph_memory[b.card].mutex);
    return rc;
}

void graph_memory_unuse(CUdeviceptr address)
{
    struct block b;
    if (!heap_find(address, &b) || b.kind != M_POOL || b.owner)
        return;
    pthread_mutex_lock(&graph_memory[b.card].mutex);
    if (b.flags & IN_USE)
        graph_memory[b.card].used -= room_of(&b);
    unsigned flags = b.flags & CHARGED;
    heap_change(address, set_flags, &flags);
    pthread_mutex_unlock(&graph_memory[b.card].mutex);
}

struct trimming { unsigned card; uint64_t freed, requested; uint32_t count; };

static void trim_one(struct block *b, void *arg)
{
    struct trimming *t = arg;
    if (b->kind != M_POOL || b->owner || b->card != t->card || b->flags != CHARGED)
        return;
    b->flags = 0;
    t->freed += room_of(b);
    t->requested += b->size;
    t->count++;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    ENTER_DEVICE(cuDeviceGraphMemTrim, device);
    struct trimming t = {.card = cu.devices[device].card};
    pthread_mutex_lock(&graph_memory[t.card].mutex);
    heap_each(trim_one, &t);
    graph_memory[t.card].reserved -= t.freed;
    memory_release(t.card, cu.slot, (struct charge){t.freed, t.requested, t.count, 0, 0});
    pthread_mutex_unlock(&graph_memory[t.card].mutex);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    ENTER_DEVICE(cuDeviceGetGraphMemAttribute, device);
    if (!value || attribute < 0 || attribute > 3)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned card = cu.devices[device].card;
    pthread_mutex_lock(&graph_memory[card].mutex);
    const uint64_t values[] = {graph_memory[card].used, graph_memory[card].used_high, graph_memory[card].reserved,
                               graph_memory[card].reserved_high};
    *(uint64_t *)value = values[attribute];
    pthread_mutex_unlock(&graph_memory[card].mutex);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
    ENTER_DEVICE(cuDeviceSetGraphMemAttribute, device);
    if (!value || (attribute != 1 && attribute != 3) || *(uint64_t *)value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned card = cu.devices[device].card;
    pthread_mutex_lock(&graph_memory[card].mutex);
    if (attribute == 1)
        graph_memory[card].used_high = graph_memory[card].used;
    else
        graph_memory[card].reserved_high = graph_memory[card].reserved;
    pthread_mutex_unlock(&graph_memory[card].mutex);
    return CUDA_SUCCESS;
}
