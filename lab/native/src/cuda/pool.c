/* Stream-ordered memory. A pool takes memory from the card in large pieces and keeps it: what it costs is what it reserved.
 *
 * Freed memory can be used again at once (work is ordered by the axis of the card); at a synchronisation, pieces that are wholly free
 * go back to the card as far as the pool holds more than its release threshold. */
#define _GNU_SOURCE
#include "pool.h"

#include <stdlib.h>
#include <string.h>

#define GRAIN 512ull
#define PIECE (32 * MIB)

/* A free stretch of a piece; a piece that is one free stretch can be given back. */
struct pool_free {
    struct pool_free *next; /* by address */
    uint64_t at, bytes;
    uint64_t piece, piece_bytes;
};

/* ---- inside a pool; its mutex held ---- */

static void join_neighbours(struct pool_free *f)
{
    while (f && f->next && f->piece == f->next->piece && f->at + f->bytes == f->next->at) {
        struct pool_free *gone = f->next;
        f->bytes += gone->bytes;
        f->next = gone->next;
        free(gone);
    }
}

static bool put_free(struct pool *p, uint64_t at, uint64_t bytes, uint64_t piece, uint64_t piece_bytes)
{
    struct pool_free *f = malloc(sizeof *f), *before = NULL;
    if (!f)
        return false;
    for (struct pool_free *i = p->free; i && i->at < at; i = i->next)
        before = i;
    *f = (struct pool_free){before ? before->next : p->free, at, bytes, piece, piece_bytes};
    if (before)
        before->next = f;
    else
        p->free = f;
    join_neighbours(f);
    join_neighbours(before);
    return true;
}

static bool take_free(struct pool *p, uint64_t bytes, struct block *b)
{
    for (struct pool_free **i = &p->free; *i; i = &(*i)->next) {
        struct pool_free *f = *i;
        if (f->bytes < bytes)
            continue;
        b->extent = f->at;
        b->owner = handle_of(K_POOL, p);
        b->physical = f->piece;      /* a pool's block remembers its piece instead */
        b->position = f->piece_bytes;
        f->at += bytes, f->bytes -= bytes;
        if (f->bytes == 0) {
            *i = f->next;
            free(f);
        }
        return true;
    }
    return false;
}

void pool_trim(struct pool *p, uint64_t keep)
{
    for (struct pool_free **i = &p->free; *i;) {
        struct pool_free *f = *i;
        if (f->bytes != f->piece_bytes || p->reserved - f->bytes < keep || p->reserved <= keep) {
            i = &f->next;
            continue;
        }
        *i = f->next;
        p->reserved -= f->bytes;
        extent_give(f->at, f->bytes);
        if (!p->host)
            memory_release(p->card, cu.slot, (struct charge){f->bytes, 0, 0, 0, 0});
        free(f);
    }
}

static bool grow(struct pool *p, uint64_t bytes)
{
    uint64_t piece = (bytes + BLOCK - 1) & ~(BLOCK - 1), extent;
    uint64_t sizes[2] = {piece < PIECE ? PIECE : piece, piece};
    for (int i = 0; i < 2; i++) {
        if (p->max_size && p->reserved + sizes[i] > p->max_size)
            continue;
        if (!p->host && !memory_charge(p->card, cu.slot, (struct charge){sizes[i], 0, 0, 0, 0}))
            continue; /* a smaller piece may still fit */
        if (!extent_take(sizes[i], &extent) || !put_free(p, extent, sizes[i], extent, sizes[i])) {
            if (!p->host)
                memory_release(p->card, cu.slot, (struct charge){sizes[i], 0, 0, 0, 0});
            return false;
        }
        p->reserved += sizes[i];
        p->reserved_high = p->reserved > p->reserved_high ? p->reserved : p->reserved_high;
        return true;
    }
    return false;
}

/* ---- all pools ---- */

struct trimming { struct pool *except; bool settle; };

static void trim_one(void *object, void *arg)
{
    struct pool *p = object;
    const struct trimming *t = arg;
    if (p == t->except)
        return;
    pthread_mutex_lock(&p->mutex);
    pool_trim(p, t->settle ? p->threshold : 0);
    pthread_mutex_unlock(&p->mutex);
}

static _Atomic bool any_pool;

void pools_settle(void)
{
    if (atomic_load_explicit(&any_pool, memory_order_relaxed))
        handle_each(K_POOL, trim_one, &(struct trimming){NULL, true});
}

CUresult pool_alloc(struct pool *p, uint64_t bytes, CUcontext context, CUdeviceptr *out)
{
    if (bytes > 1ull << 60)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t room = (bytes + GRAIN - 1) & ~(GRAIN - 1);
    struct block b = {.size = bytes, .kind = M_POOL, .card = p->card, .context = context, .managed = p->managed, .on_host = p->host};
    pthread_mutex_lock(&p->mutex);
    bool got = take_free(p, room, &b) || (grow(p, room) && take_free(p, room, &b));
    if (!got) { /* other pools of the process may hold what is missing */
        pthread_mutex_unlock(&p->mutex);
        handle_each(K_POOL, trim_one, &(struct trimming){p, false});
        pthread_mutex_lock(&p->mutex);
        pool_trim(p, 0);
        got = grow(p, room) && take_free(p, room, &b);
    }
    struct block *kept = NULL;
    if (got) {
        b.data = extent_data(b.extent);
        b.address = p->host || p->managed ? (uint64_t)b.data : extent_address(b.extent); /* who may follow it on the host */
        kept = heap_enter(b);
        if (!kept)
            put_free(p, b.extent, room, b.physical, b.position);
    }
    if (kept) {
        p->used += room;
        p->used_high = p->used > p->used_high ? p->used : p->used_high;
        *out = b.address;
        struct machine_account *a = account_at(p->card, cu.slot);
        __atomic_fetch_add(&a->requested_bytes, bytes, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&p->mutex);
    return kept ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult pool_free_now(uint64_t address)
{
    struct block b;
    if (!heap_leave(address, M_POOL, &b))
        return CUDA_ERROR_INVALID_VALUE;
    struct pool *p = handle_get(K_POOL, b.owner);
    if (!p)
        return CUDA_SUCCESS;
    uint64_t room = (b.size + GRAIN - 1) & ~(GRAIN - 1);
    pthread_mutex_lock(&p->mutex);
    p->used -= room < p->used ? room : p->used;
    put_free(p, b.extent, room, b.physical, b.position);
    pthread_mutex_unlock(&p->mutex);
    __atomic_fetch_sub(&account_at(p->card, cu.slot)->requested_bytes, b.size, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

struct pool *pool_new(const CUmemPoolProps *props)
{
    const struct context *context = context_current();
    CUdevice device = props->location.type == LOCATION_DEVICE ? props->location.id : context ? context->device : 0;
    struct pool *p = handle_new(K_POOL);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->mutex, NULL);
    p->props = *props;
    p->managed = props->allocType == ALLOCATION_MANAGED;
    p->host = !p->managed && props->location.type != LOCATION_DEVICE;
    p->device = device;
    p->card = cu.devices[device].card;
    p->max_size = (props->maxSize + BLOCK - 1) & ~(BLOCK - 1);
    p->reuse[0] = p->reuse[1] = p->reuse[2] = 1;
    for (int i = 0; i < cu.device_count; i++)
        p->access[i] = p->managed || (i == device && !p->host) ? 3 : 0;
    atomic_store(&any_pool, true);
    return p;
}
