/* Device memory of this process: addresses, records and bytes.
 *
 * The bytes live in one sparse memory file (the arena): only touched pages cost anything. A device address is a place in a
 * reserved window that nobody can touch, so following a device pointer on the host faults as it does on hardware; the same
 * place in a second window is readable, for copies, and is what managed memory hands out. Physical memory is charged in
 * blocks of 2 MiB; requests up to half a block share one, as the driver does. */
#define _GNU_SOURCE
#include "cuda.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define SMALLEST 512ull
#define CLASSES 12 /* 512 B … 1 MiB */

struct span { uint64_t at, bytes; };

struct chunk {
    uint64_t extent, bytes_each;
    unsigned class, card, used, slots;
    CUcontext context;
    struct chunk *next, *before; /* among those of its class that have room */
    uint64_t taken[BLOCK / SMALLEST / 64];
};

static struct {
    pthread_mutex_t mutex;
    bool opened;
    int fd;
    uint64_t window;
    char *device, *data;
    struct span *free;
    size_t free_count, free_room;
    void *tree; /* of struct block, by address */
    struct chunk *chunks[CLASSES];
    uint64_t next_id;
} heap = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* ---- the arena ---- */

static bool open_arena(void)
{
    if (heap.opened)
        return heap.data != NULL;
    heap.opened = true;
    uint64_t window = 4096 * MIB;
    for (int i = 0; i < cu.device_count; i++)
        window += 2 * card_at(cu.devices[i].card)->memory_bytes;
    window = (window + BLOCK - 1) & ~(BLOCK - 1);
    heap.fd = memfd_create("pumice-device-memory", MFD_CLOEXEC);
    if (heap.fd < 0 || ftruncate(heap.fd, (off_t)window) != 0)
        return false;
    char *data = mmap(NULL, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, heap.fd, 0);
    char *device = mmap(NULL, window + BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    heap.free = malloc(sizeof *heap.free * 64);
    if (data == MAP_FAILED || device == MAP_FAILED || !heap.free)
        return false;
    heap.free_room = 64;
    heap.free[heap.free_count++] = (struct span){0, window};
    heap.device = (char *)(((uint64_t)device + BLOCK - 1) & ~(BLOCK - 1));
    heap.window = window;
    heap.data = data;
    return true;
}

int arena_descriptor(void)
{
    return heap.fd;
}

char *extent_data(uint64_t extent)
{
    return heap.data + extent;
}

uint64_t extent_address(uint64_t extent)
{
    return (uint64_t)heap.device + extent;
}

/* The next stretch of touched pages in [from, from + bytes); false: none. Memory of others counts as touched. */
bool arena_touched(const char *from, uint64_t bytes, const char **at, uint64_t *length)
{
    if (from < heap.data || from >= heap.data + heap.window) {
        *at = from;
        *length = bytes;
        return bytes > 0;
    }
    off_t start = from - heap.data, end = start + (off_t)bytes;
    off_t data = bytes ? lseek(heap.fd, start, SEEK_DATA) : -1;
    if (data < 0 || data >= end)
        return false;
    off_t hole = lseek(heap.fd, data, SEEK_HOLE);
    hole = hole < 0 || hole > end ? end : hole;
    *at = heap.data + data;
    *length = (uint64_t)(hole - data);
    return true;
}

/* The whole pages of the range are as if never touched: zero. False: not memory of the arena. */
bool arena_forget(const char *from, uint64_t bytes)
{
    if (from < heap.data || from >= heap.data + heap.window)
        return false;
    return fallocate(heap.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from - heap.data, (off_t)bytes) == 0;
}

static bool take(uint64_t bytes, uint64_t *extent)
{
    if (!open_arena())
        return false;
    for (size_t i = 0; i < heap.free_count; i++) {
        struct span *s = &heap.free[i];
        if (s->bytes < bytes)
            continue;
        *extent = s->at;
        s->at += bytes;
        s->bytes -= bytes;
        if (s->bytes == 0)
            memmove(s, s + 1, (--heap.free_count - i) * sizeof *s);
        return true;
    }
    return false;
}

static void give(uint64_t extent, uint64_t bytes)
{
    fallocate(heap.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)extent, (off_t)bytes);
    size_t i = 0, low = 0, high = heap.free_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (heap.free[middle].at < extent)
            low = middle + 1;
        else
            high = middle;
    }
    i = low;
    bool left = i > 0 && heap.free[i - 1].at + heap.free[i - 1].bytes == extent;
    bool right = i < heap.free_count && extent + bytes == heap.free[i].at;
    if (left && right) {
        heap.free[i - 1].bytes += bytes + heap.free[i].bytes;
        memmove(&heap.free[i], &heap.free[i + 1], (--heap.free_count - i) * sizeof *heap.free);
    } else if (left) {
        heap.free[i - 1].bytes += bytes;
    } else if (right) {
        heap.free[i].at = extent;
        heap.free[i].bytes += bytes;
    } else {
        if (heap.free_count == heap.free_room) {
            struct span *more = realloc(heap.free, 2 * heap.free_room * sizeof *more);
            if (!more)
                return; /* the room is lost, nothing else */
            heap.free = more;
            heap.free_room *= 2;
        }
        memmove(&heap.free[i + 1], &heap.free[i], (heap.free_count++ - i) * sizeof *heap.free);
        heap.free[i] = (struct span){extent, bytes};
    }
}

bool extent_take(uint64_t bytes, uint64_t *extent)
{
    pthread_mutex_lock(&heap.mutex);
    bool done = take(bytes, extent);
    pthread_mutex_unlock(&heap.mutex);
    return done;
}

void extent_give(uint64_t extent, uint64_t bytes)
{
    pthread_mutex_lock(&heap.mutex);
    give(extent, bytes);
    pthread_mutex_unlock(&heap.mutex);
}

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

struct walk { void (*visit)(struct block *, void *); void *arg; };

static void step(const void *node, VISIT which, void *closure)
{
    const struct walk *w = closure;
    if (which == postorder || which == leaf)
        w->visit(*(struct block *const *)node, w->arg);
}

void heap_each(void (*visit)(struct block *, void *), void *arg)
{
    struct walk w = {visit, arg};
    pthread_mutex_lock(&heap.mutex);
    twalk_r(heap.tree, step, &w);
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
    if (!c || !take(BLOCK, &extent)) {
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

/* True: the chunk is empty now and gone; its block goes back to the card. */
static bool chunk_vacate(struct chunk *c, uint64_t extent)
{
    unsigned slot = (unsigned)((extent - c->extent) / c->bytes_each);
    c->taken[slot / 64] &= ~(1ull << slot % 64);
    if (c->used-- == c->slots)
        chunk_list(c);
    if (c->used > 0)
        return false;
    chunk_unlist(c);
    give(c->extent, BLOCK);
    free(c);
    return true;
}

/* ---- allocate and free ---- */

static bool is_small(uint64_t size, enum memory_kind kind)
{
    return size <= BLOCK / 2 && kind == M_DEVICE;
}

/* Where it goes, and what that costs the card now. */
static bool place(struct block *b)
{
    if (!b->small)
        return take(b->physical, &b->extent);
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
        return chunk_vacate(b->chunk, b->extent) ? BLOCK : 0;
    give(b->extent, b->physical);
    return b->physical;
}

CUresult heap_alloc(unsigned card, CUcontext context, uint64_t size, enum memory_kind kind, struct block **out)
{
    if (size > UINT64_MAX - BLOCK || size > 1ull << 60)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct block b = {.size = size, .kind = kind, .card = card, .context = context, .small = is_small(size, kind)};
    b.physical = (size + BLOCK - 1) & ~(BLOCK - 1);
    pthread_mutex_lock(&heap.mutex);
    bool placed = place(&b);
    if (placed && !memory_charge(card, cu.slot, (struct charge){b.physical, size, 1, 0, 0})) {
        unplace(&b);
        placed = false;
    }
    if (placed) {
        b.data = heap.data + b.extent;
        b.address = kind == M_MANAGED ? (uint64_t)b.data : (uint64_t)heap.device + b.extent;
        if (!b.small)
            b.physical = (size + BLOCK - 1) & ~(BLOCK - 1);
        *out = insert(b);
        if (!*out) {
            memory_release(card, cu.slot, (struct charge){unplace(&b), size, 1, 0, 0});
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
    uint64_t physical = unplace(b);
    memory_release(b->card, cu.slot, (struct charge){physical, b->size, 1, 0, 0});
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

struct list { CUcontext context; struct block **items; size_t count, room; };

static void collect(struct block *b, void *arg)
{
    struct list *l = arg;
    if (b->context != l->context || (b->kind != M_DEVICE && b->kind != M_MANAGED))
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

/* ---- bytes ---- */

/* The kernel copies, so a bad host pointer is an error and not a fault. Small copies within the arena are known to be good. */
CUresult copy_bytes(void *to, const void *from, size_t bytes)
{
    static _Atomic bool refused;
    if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
        size_t done = 0;
        while (done < bytes) {
            struct iovec local = {(char *)to + done, bytes - done};
            struct iovec remote = {(void *)((uintptr_t)from + done), bytes - done};
            ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
            if (n <= 0 && (errno == EPERM || errno == ENOSYS)) {
                atomic_store(&refused, true);
                break;
            }
            if (n <= 0)
                return CUDA_ERROR_INVALID_VALUE;
            done += (size_t)n;
        }
        if (done == bytes)
            return CUDA_SUCCESS;
    }
    memmove(to, from, bytes);
    return CUDA_SUCCESS;
}

uint64_t copy_time(uint64_t bytes)
{
    uint64_t speed = the_machine->copy_bytes_per_us;
    return speed ? (bytes * 1000 + speed - 1) / speed : 0;
}
