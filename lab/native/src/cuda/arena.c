/* The bytes of device memory: one sparse memory file, of which only touched pages cost anything.
 *
 * A device address is a place in a reserved window that nobody can touch, so following a device pointer on the host faults as it
 * does on hardware; the same place in a second window is readable, for copies, and is what managed memory hands out. */
#define _GNU_SOURCE
#include "cuda.h"
#include "old_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

struct span { uint64_t at, bytes; };

static struct {
    pthread_mutex_t mutex;
    bool opened;
    int fd;
    uint64_t window;
    char *device, *data;
    struct span *free; /* by place */
    size_t free_count, free_room;
} arena = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static bool open_arena(void)
{
    if (arena.opened)
        return arena.data != NULL;
    arena.opened = true;
    uint64_t window = 4096 * MIB;
    for (int i = 0; i < cu.device_count; i++)
        window += 2 * card_at(cu.devices[i].card)->memory_bytes;
    window = (window + BLOCK - 1) & ~(BLOCK - 1);
    arena.fd = memory_file("pumice-device-memory", MFD_CLOEXEC);
    if (arena.fd < 0 || ftruncate(arena.fd, (off_t)window) != 0)
        return false;
    char *data = mmap(NULL, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena.fd, 0);
    char *device = mmap(NULL, window + BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    arena.free = malloc(sizeof *arena.free * 64);
    if (data == MAP_FAILED || device == MAP_FAILED || !arena.free)
        return false;
    arena.free_room = 64;
    arena.free[arena.free_count++] = (struct span){0, window};
    arena.device = (char *)(((uint64_t)device + BLOCK - 1) & ~(BLOCK - 1));
    arena.window = window;
    arena.data = data;
    return true;
}

int arena_descriptor(void)
{
    return arena.fd;
}

char *extent_data(uint64_t extent)
{
    return arena.data + extent;
}

uint64_t extent_address(uint64_t extent)
{
    return (uint64_t)arena.device + extent;
}

static bool inside(const char *data)
{
    pthread_mutex_lock(&arena.mutex);
    bool yes = arena.data && data >= arena.data && data < arena.data + arena.window;
    pthread_mutex_unlock(&arena.mutex);
    return yes;
}

/* The next stretch of touched pages in [from, from + bytes); false: none. Memory of others counts as touched. */
bool arena_touched(const char *from, uint64_t bytes, const char **at, uint64_t *length)
{
    if (!inside(from)) {
        *at = from;
        *length = bytes;
        return bytes > 0;
    }
    off_t start = from - arena.data, end = start + (off_t)bytes;
    off_t data = bytes ? lseek(arena.fd, start, SEEK_DATA) : -1;
    if (data < 0 || data >= end)
        return false;
    off_t hole = lseek(arena.fd, data, SEEK_HOLE);
    hole = hole < 0 || hole > end ? end : hole;
    *at = arena.data + data;
    *length = (uint64_t)(hole - data);
    return true;
}

/* The whole pages of the range are as if never touched: zero. False: not memory of the arena. */
bool arena_forget(const char *from, uint64_t bytes)
{
    if (!inside(from))
        return false;
    return fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from - arena.data, (off_t)bytes) == 0;
}

static bool take(uint64_t bytes, uint64_t *extent)
{
    if (!open_arena())
        return false;
    for (size_t i = 0; i < arena.free_count; i++) {
        struct span *s = &arena.free[i];
        if (s->bytes < bytes)
            continue;
        *extent = s->at;
        s->at += bytes;
        s->bytes -= bytes;
        if (s->bytes == 0)
            memmove(s, s + 1, (--arena.free_count - i) * sizeof *s);
        return true;
    }
    return false;
}

static void give(uint64_t extent, uint64_t bytes)
{
    fallocate(arena.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)extent, (off_t)bytes);
    size_t i = 0, low = 0, high = arena.free_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (arena.free[middle].at < extent)
            low = middle + 1;
        else
            high = middle;
    }
    i = low;
    bool left = i > 0 && arena.free[i - 1].at + arena.free[i - 1].bytes == extent;
    bool right = i < arena.free_count && extent + bytes == arena.free[i].at;
    if (left && right) {
        arena.free[i - 1].bytes += bytes + arena.free[i].bytes;
        memmove(&arena.free[i], &arena.free[i + 1], (--arena.free_count - i) * sizeof *arena.free);
    } else if (left) {
        arena.free[i - 1].bytes += bytes;
    } else if (right) {
        arena.free[i].at = extent;
        arena.free[i].bytes += bytes;
    } else {
        if (arena.free_count == arena.free_room) {
            struct span *more = realloc(arena.free, 2 * arena.free_room * sizeof *more);
            if (!more)
                return; /* the room is lost, nothing else */
            arena.free = more;
            arena.free_room *= 2;
        }
        memmove(&arena.free[i + 1], &arena.free[i], (arena.free_count++ - i) * sizeof *arena.free);
        arena.free[i] = (struct span){extent, bytes};
    }
}

bool extent_take(uint64_t bytes, uint64_t *extent)
{
    pthread_mutex_lock(&arena.mutex);
    bool done = take(bytes, extent);
    pthread_mutex_unlock(&arena.mutex);
    return done;
}

void extent_give(uint64_t extent, uint64_t bytes)
{
    pthread_mutex_lock(&arena.mutex);
    give(extent, bytes);
    pthread_mutex_unlock(&arena.mutex);
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
