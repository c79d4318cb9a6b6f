/* Device memory of this process: what is where, and what it costs. Physical memory is charged in blocks of 2 MiB; requests up to
 * half a block share one, as the driver does. */
#define _GNU_SOURCE
#include "cuda.h"

#include <search.h>
#include <stdlib.h>
#include <sys/mman.h>

#define SMALLEST 512ull
#define CLASSES 12 /* 512 B … 1 MiB */

struct chunk {
    uint64_t extent, bytes_each;
    unsigned class, card, used, slots;
    CUcontext context;
    uint32_t share;
    uint64_t share_id;
    struct chunk *next, *before; /* among those of its class that have room */
    uint64_t taken[BLOCK / SMALLEST / 64];
};

struct walk { void (*visit)(struct block *, void *); void *arg; };

static struct {
    pthread_mutex_t mutex;
    void *tree; /* of struct block, by address */
    struct chunk *chunks[CLASSES];
    uint64_t next_id;
    const struct walk *walk; /* in progress: twalk() takes no argument of its own, and twalk_r() is newer than glibc 2.17 */
} heap = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- records ---- */

static int compare(const void *one, const void *other)
{
    const struct block *a = one, *b = other;
    if (a->address + a->size <= b->address)
        return -1;
    return b->address + b->size <= a->address ? 1 : 0;
}

static struct block *find(uint64_t address)
{
    struct block key = {.address = address, .size = 1};
    struct block **node = address ? tfind(&key, &heap.tree, compare) : NULL;
    return node ? *node : NULL;
}

/* NULL: something is there already, or no memory. */
static struct block *insert(struct block block)
{
    struct block *kept = malloc(sizeof *kept);
    if (!kept)
        return NULL;
    *kept = block;
    kept->id = ++heap.next_id;
    struct block **node = tsearch(kept, &heap.tree, compare);
    if (node && *node == kept)
        return kept;
    free(kept);
    return NULL;
}

bool heap_find(uint64_t address, struct block *out)
{
    pthread_mutex_lock(&heap.mutex);
    struct block *b = find(address);
    if (b)
        *out = *b;
    pthread_mutex_unlock(&heap.mutex);
    return b != NULL;
}

bool heap_covers(uint64_t address, uint64_t size, struct block *out)
{
    return heap_find(address, out) && size <= out->size && address - out->address <= out->size - size;
}

struct block *heap_enter(struct block block)
{
    pthread_mutex_lock(&heap.mutex);
    struct block *kept = block.size ? insert(block) : NULL;
    pthread_mutex_unlock(&heap.mutex);
    return kept;
}

bool heap_leave(uint64_t address, enum memory_kind kind, struct block *out)
{
    pthread_mutex_lock(&heap.mutex);
    struct block *b = find(address);
    bool found = b && b->kind == kind && b->address == address;
    if (found) {
        tdelete(b, &heap.tree, compare);
        *out = *b;
        free(b);
    }
    pthread_mutex_unlock(&heap.mutex);
    return found;
}

bool heap_change(uint64_t address, void (*change)(struct block *, void *), void *arg)
{
    pthread_mutex_lock(&heap.mutex);
    struct block *b = find(address);
    if (b)
        change(b, arg);
    pthread_mutex_unlock(&heap.mutex);
    return b != NULL;
}

static void step(const void *node, VISIT which, int depth)
{
    (void)depth;
    if (which == postorder || which == leaf)
        heap.walk->visit(*(struct block *const *)node, heap.walk->arg);
}

void heap_each(void (*visit)(struct block *, void *), void *arg)
{
    struct walk w = {visit, arg};
    pthread_mutex_lock(&heap.mutex);
    heap.walk = &w;
    twalk(heap.tree, step);
    pthread_mutex_unlock(&heap.mutex);
}

/* ---- small requests share a block ---- */

static unsigned class_of(uint64_t size)
{
    unsigned class = 0;
    while (SMALLEST << class < size)
        class++;
    return class;
}

static struct chunk *chunk_with_room(unsigned class, unsigned card, CUcontext context)
{
    for (struct chunk *c = heap.chunks[class]; c; c = c->next)
        if (c->card == card && c->context == context)
            return c;
    return NULL;
}

static void chunk_list(struct chunk *c)
{
    c->before = NULL;
    c->next = heap.chunks[c->class];
    if (c->next)
        c->next->before = c;
    heap.chunks[c->class] = c;
}

static void chunk_unlist(struct chunk *c)
{
    if (c->next)
        c->next->before = c->before;
    if (c->before)
        c->before->next = c->next;
    else
        heap.chunks[c->class] = c->next;
}

static struct chunk *chunk_new(unsigned class, unsigned card, CUcontext context)
{
    uint64_t extent;
    struct chunk *c = calloc(1, sizeof *c);
    if (!c || !extent_take(BLOCK, &extent)) {
        free(c);
        return NULL;
    }
    c->extent = extent;
    c->class = class;
    c->bytes_each = SMALLEST << class;
    c->slots = (unsigned)(BLOCK / c->bytes_each);
    c->card = card;
    c->context = context;
    chunk_list(c);
    return c;
}

/* A place in a chunk that has room. */
static uint64_t chunk_place(struct chunk *c)
{
    unsigned word = 0;
    while (c->taken[word] == UINT64_MAX)
        word++;
    unsigned slot = word * 64 + (unsigned)__builtin_ctzll(~c->taken[word]);
    c->taken[word] |= 1ull << slot % 64;
    if (++c->used == c->slots)
        chunk_unlist(c);
    return c->extent + slot * c->bytes_each;
}

/* Whether others go on holding what is let go here: then they pay, and its bytes stay where they lie. */
static bool others_hold(uint32_t share)
{
    return share && share_leave(share, cu.slot);
}

/* What goes back to the card: the block of a chunk that is empty now and gone, or nothing. */
static uint64_t chunk_vacate(struct chunk *c, uint64_t extent)
{
    unsigned slot = (unsigned)((extent - c->extent) / c->bytes_each);
    c->taken[slot / 64] &= ~(1ull << slot % 64);
    if (c->used-- == c->slots)
        chunk_list(c);
    if (c->used > 0)
        return 0;
    chunk_unlist(c);
    bool others = others_hold(c->share);
    if (!others)
        extent_give(c->extent, BLOCK);
    free(c);
    return others ? 0 : BLOCK;
}

/* ---- allocate and free ---- */

static bool pay(const struct block *b)
{
    struct charge c = {b->physical, b->size, 1, 0, 0};
    if (b->kind != M_MANAGED)
        return memory_charge(b->card, cu.slot, c);
    memory_charge_managed(b->card, cu.slot, c);
    return true;
}

static void give_back(const struct block *b, uint64_t physical)
{
    struct charge c = {physical, b->size, 1, 0, 0};
    b->kind == M_MANAGED ? memory_release_managed(b->card, cu.slot, c) : memory_release(b->card, cu.slot, c);
}

static bool is_small(uint64_t size, enum memory_kind kind)
{
    return size <= BLOCK / 2 && kind == M_DEVICE;
}

/* Its place, and what that costs the card now. */
static bool place(struct block *b)
{
    if (!b->small)
        return extent_take(b->physical, &b->extent);
    unsigned class = class_of(b->size);
    struct chunk *c = chunk_with_room(class, b->card, b->context);
    b->physical = c ? 0 : BLOCK;
    if (!c)
        c = chunk_new(class, b->card, b->context);
    if (!c)
        return false;
    b->extent = chunk_place(c);
    b->chunk = c;
    return true;
}

static uint64_t unplace(const struct block *b)
{
    if (b->small)
        return chunk_vacate(b->chunk, b->extent);
    bool others = others_hold(b->share);
    if (b->kind == M_IMPORTED)
        munmap(b->owner, b->position);
    else if (!others)
        extent_give(b->extent, b->physical);
    return others ? 0 : b->physical;
}

CUresult heap_alloc(unsigned card, CUcontext context, uint64_t size, enum memory_kind kind, struct block **out)
{
    if (size > UINT64_MAX - BLOCK || size > 1ull << 60)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block b = {.size = size, .kind = kind, .card = card, .context = context, .small = is_small(size, kind)};
    b.physical = (size + BLOCK - 1) & ~(BLOCK - 1);
    pthread_mutex_lock(&heap.mutex);
    bool placed = place(&b);
    if (placed && !pay(&b)) {
        unplace(&b);
        placed = false;
    }
    if (placed) {
        b.data = extent_data(b.extent);
        b.address = kind == M_MANAGED ? (uint64_t)b.data : extent_address(b.extent);
        if (!b.small)
            b.physical = (size + BLOCK - 1) & ~(BLOCK - 1);
        *out = insert(b);
        if (!*out) {
            give_back(&b, unplace(&b));
            placed = false;
        }
    }
    pthread_mutex_unlock(&heap.mutex);
    return placed ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* mutex held; the block's memory is gone afterwards */
static void end_block(struct block *b)
{
    tdelete(b, &heap.tree, compare);
    give_back(b, unplace(b));
    free(b);
}

CUresult heap_free(uint64_t address, enum memory_kind kind)
{
    pthread_mutex_lock(&heap.mutex);
    struct block *b = find(address);
    bool ours = b && b->address == address && b->kind == kind;
    if (ours)
        end_block(b);
    pthread_mutex_unlock(&heap.mutex);
    return ours ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool heap_share(uint64_t address, struct block *out)
{
    pthread_mutex_lock(&heap.mutex);
    struct block *b = find(address);
    if (b && !b->small && !b->share)
        b->share = share_new(b->card, cu.slot, b->physical, &b->share_id);
    if (b && b->small && !b->chunk->share)
        b->chunk->share = share_new(b->card, cu.slot, BLOCK, &b->chunk->share_id);
    if (b) {
        *out = *b;
        if (b->small) {
            out->share = b->chunk->share;
            out->share_id = b->chunk->share_id;
            out->physical = BLOCK;
        }
    }
    pthread_mutex_unlock(&heap.mutex);
    return b && out->share;
}

struct list { CUcontext context; struct block **items; size_t count, room; };

static void collect(struct block *b, void *arg)
{
    struct list *l = arg;
    if (b->context != l->context || (b->kind != M_DEVICE && b->kind != M_MANAGED && b->kind != M_IMPORTED))
        return;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct block **more = realloc(l->items, room * sizeof *more);
        if (!more)
            return;
        l->items = more;
        l->room = room;
    }
    l->items[l->count++] = b;
}

void heap_end_context(CUcontext context)
{
    struct list l = {.context = context};
    heap_each(collect, &l);
    pthread_mutex_lock(&heap.mutex);
    for (size_t i = 0; i < l.count; i++)
        end_block(l.items[i]);
    pthread_mutex_unlock(&heap.mutex);
    free(l.items);
}
