#include "services/shared_allocation.h"

#include "core/after_fork.h"
#include "core/shared_allocations.h"
#include "core/lock.h"
#include "core/process.h"
#include "core/quiet.h"
#include "core/waits.h"
#include "services/blocks.h"
#include "services/process_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DESCRIPTORS_END (1ull << 62)

/* How many records of this process hold a shared allocation. */
static uint32_t held[SHARED_ALLOCATIONS + 1];
static uint8_t with_block[SHARED_ALLOCATIONS + 1]; /* 1 + the device: exported here out of a shared block, which is paid for once more */
static uint64_t beside_driver[REGION_DEVICES];
static pthread_mutex_t shared_allocation_mutex = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(held);
FORGET_IN_CHILD(with_block);
FORGET_IN_CHILD(beside_driver);
FORGET_IN_CHILD(shared_allocation_mutex);

static uint64_t words_of(const void *handle)
{
    uint64_t hash = 14695981039346656037ull;
    for (int i = 0; i < HANDLE_BYTES; i++)
        hash = (hash ^ ((const unsigned char *)handle)[i]) * 1099511628211ull;
    return hash != 0 ? hash : 1;
}

/* A place for SHARED_ALLOCATION_EXPORTS locks that is nobody else's: of whatever container or share the file is seen in. */
static uint64_t new_descriptors(void)
{
    static uint64_t count;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t seed = ((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec) + ((uint64_t)getpid() << 40) + ++count;
    seed = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9ull;
    seed = (seed ^ seed >> 27) * 0x94d049bb133111ebull;
    return ((seed ^ seed >> 31) & (DESCRIPTORS_END - 1) & -(uint64_t)SHARED_ALLOCATION_EXPORTS) | SHARED_ALLOCATION_EXPORTS;
}

uint64_t shared_allocation_beside_driver(int device)
{
    return shared_peek(&beside_driver[device]);
}

/* shared_allocation_mutex held. */
static void count_block(uint32_t shared_allocation, int device, bool more)
{
    with_block[shared_allocation] = (uint8_t)(more ? device + 1 : 0);
    __atomic_add_fetch(&beside_driver[device], more ? BLOCK_BYTES : -BLOCK_BYTES, __ATOMIC_RELAXED);
}

/* shared_allocation_mutex held. What shares a block with others is exported with the whole block, which is paid for once more. */
static uint32_t shared_allocation_of_record(enum record_kind kind, uint64_t key, uint64_t words)
{
    struct record record;
    if (!records_find(kind, key, &record))
        return 0;
    if (record.device < 0 || record.shared_allocation != 0)
        return record.shared_allocation;
    bool shares = kind == RECORD_LINEAR && !record.charged;
    if ((!shares && !record.charged) || (shares && !process_reserve(record.device, BLOCK_BYTES)))
        return 0;
    uint64_t bytes = shares ? BLOCK_BYTES : record.bytes;
    uint32_t shared_allocation = shared_allocation_new(&process_state.map, record.device, bytes, new_descriptors(), words);
    bool done = shared_allocation != 0 && records_join_up(kind, key, shared_allocation);
    if (done)
        held[shared_allocation]++;
    if (done && process_state.map.ledger != NULL)
        process_release(record.device, bytes);
    if (done && shares)
        count_block(shared_allocation, record.device, true);
    struct shared_allocation what;
    bool left = shared_allocation != 0 && !done && (shared_allocation_leave(&process_state.map, shared_allocation, &what) || process_state.map.ledger != NULL);
    if (shares && (left || shared_allocation == 0))
        process_release(record.device, BLOCK_BYTES);
    return done ? shared_allocation : 0;
}

void shared_allocation_exported_bytes(enum record_kind kind, uint64_t key, const void *handle)
{
    KEEP_ERRNO;
    mutex_take(&shared_allocation_mutex);
    uint64_t words = words_of(handle);
    uint32_t shared_allocation = shared_allocation_of_record(kind, key, words);
    if (shared_allocation != 0)
        shared_allocation_name(&process_state.map, shared_allocation, words);
    pthread_mutex_unlock(&shared_allocation_mutex);
}

void shared_allocation_exported_descriptor(enum record_kind kind, uint64_t key, int fd)
{
    KEEP_ERRNO;
    uint64_t descriptors = 0;
    mutex_take(&shared_allocation_mutex);
    uint32_t shared_allocation = shared_allocation_of_record(kind, key, 0);
    int export = shared_allocation != 0 ? shared_allocation_export(&process_state.map, shared_allocation, &descriptors) : -1;
    if (export >= 0) {
        struct flock own = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = (off_t)(descriptors + (uint64_t)export), .l_len = 1};
        fcntl(fd, F_OFD_SETLK, &own);
    }
    pthread_mutex_unlock(&shared_allocation_mutex);
}

static bool has_words(const struct shared_allocation *shared_allocation, const void *sought)
{
    return shared_allocation->words == *(const uint64_t *)sought;
}

static uint64_t name_of_words(const void *sought)
{
    return *(const uint64_t *)sought;
}

struct files {
    int imported, another; /* the same file, opened once more */
};

static bool locked_against(int fd, uint64_t at)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

/* Locked against everybody but the file itself: so it is the one that locked it. */
static bool has_locked(const struct shared_allocation *shared_allocation, const void *sought)
{
    const struct files *files = sought;
    for (uint32_t i = 0; shared_allocation->descriptors != 0 && i < shared_allocation->exports && i < SHARED_ALLOCATION_EXPORTS; i++)
        if (locked_against(files->another, shared_allocation->descriptors + i) && !locked_against(files->imported, shared_allocation->descriptors + i))
            return true;
    return false;
}

struct own_lock {
    const struct files *files;
    uint64_t at;
};

static void see_lock(struct lock_range stretch, void *data)
{
    struct own_lock *own = data;
    if (own->at == 0 && !locked_against(own->files->imported, stretch.start))
        own->at = stretch.start;
}

/* The same of the file alone, which says nothing of the region. */
static uint64_t name_of_descriptor(const void *sought)
{
    const struct files *files = sought;
    struct own_lock own = {files, 0};
    lock_walk(files->another, SHARED_ALLOCATION_EXPORTS, DESCRIPTORS_END - SHARED_ALLOCATION_EXPORTS, false, see_lock, &own);
    return own.at / SHARED_ALLOCATION_EXPORTS * SHARED_ALLOCATION_EXPORTS;
}

static uint32_t joined(const struct shared_allocation_search *search, struct shared_allocation *what)
{
    mutex_take(&shared_allocation_mutex);
    uint32_t shared_allocation = shared_allocation_join(&process_state.map, search, what);
    if (shared_allocation != 0)
        held[shared_allocation]++;
    pthread_mutex_unlock(&shared_allocation_mutex);
    return shared_allocation;
}

uint32_t shared_allocation_of_bytes(const void *handle, struct shared_allocation *what)
{
    KEEP_ERRNO;
    uint64_t words = words_of(handle);
    uint32_t shared_allocation = joined(&(struct shared_allocation_search){has_words, name_of_words, &words}, what);
    return shared_allocation;
}

uint32_t shared_allocation_of_descriptor(int fd, struct shared_allocation *what)
{
    KEEP_ERRNO;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct files files = {fd, quiet_open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK)};
    uint32_t shared_allocation = 0;
    if (files.another >= 0) {
        shared_allocation = joined(&(struct shared_allocation_search){has_locked, name_of_descriptor, &files}, what);
        quiet_close(files.another);
    }
    return shared_allocation;
}

void shared_allocation_let_go(uint32_t shared_allocation)
{
    struct shared_allocation what = {.bytes = 0};
    KEEP_ERRNO;
    mutex_take(&shared_allocation_mutex);
    bool last = shared_allocation <= SHARED_ALLOCATIONS && held[shared_allocation] > 0 && --held[shared_allocation] == 0;
    if (last && shared_allocation_leave(&process_state.map, shared_allocation, &what))
        process_release(what.device, what.bytes);
    if (last && with_block[shared_allocation] != 0 && (what.bytes > 0 || process_state.map.ledger != NULL)) /* else it stays booked */
        count_block(shared_allocation, with_block[shared_allocation] - 1, false);
    pthread_mutex_unlock(&shared_allocation_mutex);
}
