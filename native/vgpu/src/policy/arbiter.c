#include "policy/arbiter.h"

#include "core/file_status.h"
#include "core/region_map.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARBITER_MAGIC 0x31544341u /* "ACT1" */
#define ARBITER_VERSION 1u
#define STALE_NS 1000000000ull
#define BELIEVED_NS 200000000ull /* nobody is believed to be busy for longer than this */
#define CYCLE_NS 10000000ull
#define SHORTEST_WINDOW_NS 2000000ull
#define LOOK_AGAIN_NS 20000ull
#define PRESENT_NS 5000000ull /* who waits looks again within this time; later it does not hold up others */

_Static_assert(sizeof(struct arbiter_entry) == 128, "entries of the activity file are 128 bytes apart");
_Static_assert(offsetof(struct arbiter_file, entry) == 128, "the first entry of the activity file is at 128");
_Static_assert(sizeof(struct arbiter_file) == ARBITER_BYTES, "size of the activity file");

#define get(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define set(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define swap_if(p, expected, v) __atomic_compare_exchange_n((p), (expected), (v), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)

static int open_file(const char *path)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int fd = open(path, flags);
    if (fd < 0 && errno == ENOENT) {
        fd = open(path, flags | O_CREAT | O_EXCL, 0666);
        if (fd >= 0)
            fchmod(fd, 0666);
        else if (errno == EEXIST)
            fd = open(path, flags);
    }
    struct stat status;
    if (fd >= 0 && (file_status(fd, &status) != 0 || !S_ISREG(status.st_mode) || fallocate(fd, 0, 0, ARBITER_BYTES) != 0)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* A heartbeat of the future is somebody else's clock. */
static bool fresh(const struct arbiter_entry *entry, uint64_t now)
{
    uint64_t beat = get(&entry->heartbeat_ns);
    return get(&entry->identity) != 0 && beat + STALE_NS > now && beat < now + STALE_NS;
}

static int take_entry(struct arbiter_file *file, uint64_t identity, uint64_t now)
{
    for (int i = 0; i < ARBITER_ENTRIES; i++)
        if (get(&file->entry[i].identity) == identity)
            return i;
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        uint64_t before = get(&file->entry[i].identity);
        if ((before == 0 || !fresh(&file->entry[i], now)) && swap_if(&file->entry[i].identity, &before, identity)) {
            set(&file->entry[i].busy_until_ns, 0);
            set(&file->entry[i].flags, 0);
            set(&file->entry[i].heartbeat_ns, now);
            return i;
        }
    }
    return -1;
}

bool arbiter_open(struct arbiter *arbiter, const char *directory, const char *uuid, uint64_t identity, uint64_t now)
{
    char path[4096];
    *arbiter = (struct arbiter){.own = -1, .fd = -1};
    if (uuid[0] == '\0' || strchr(uuid, '/') != NULL)
        return false;
    snprintf(path, sizeof path, "%s/act-%s", directory, uuid);
    int fd = open_file(path);
    if (fd < 0)
        return false;
    fd = region_fd_move_up(fd);
    void *base = mmap(NULL, ARBITER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        close(fd);
        return false;
    }
    struct arbiter_file *file = base;
    uint32_t none = 0;
    if (swap_if(&file->magic, &none, ARBITER_MAGIC)) {
        file->version = ARBITER_VERSION;
        file->entries = ARBITER_ENTRIES;
    }
    arbiter->file = file;
    arbiter->fd = fd;
    struct stat status;
    if (file_status(fd, &status) == 0) {
        arbiter->device = status.st_dev;
        arbiter->inode = status.st_ino;
    }
    arbiter->own = get(&file->magic) == ARBITER_MAGIC ? take_entry(file, identity != 0 ? identity : 1, now) : -1;
    if (arbiter->own < 0)
        arbiter_close(arbiter);
    return arbiter->file != NULL;
}

void arbiter_close(struct arbiter *arbiter)
{
    if (arbiter->file != NULL) {
        munmap(arbiter->file, ARBITER_BYTES);
        if (file_is(arbiter->fd, arbiter->device, arbiter->inode))
            close(arbiter->fd);
    }
    *arbiter = (struct arbiter){.own = -1, .fd = -1};
}

void arbiter_publish(struct arbiter *arbiter, uint64_t now, uint64_t busy_until, uint32_t weight, bool takes_part)
{
    struct arbiter_entry *own = &arbiter->file->entry[arbiter->own];
    uint64_t seen = get(&own->busy_until_ns);
    while ((seen < busy_until || seen > now + BELIEVED_NS) && !swap_if(&own->busy_until_ns, &seen, busy_until))
        ;
    set(&own->weight, weight);
    /* Without a limit it never asks for a window: others must not wait as if it did. */
    set(&own->flags, takes_part && weight > 0 && weight < 100 ? ARBITER_TAKES_PART : 0);
    set(&own->heartbeat_ns, now);
}

void arbiter_answered(struct arbiter *arbiter, uint64_t busy_until)
{
    set(&arbiter->file->entry[arbiter->own].busy_until_ns, busy_until);
}

static uint64_t busy_until(const struct arbiter_entry *entry, uint64_t now)
{
    uint64_t until = get(&entry->busy_until_ns);
    return until < now + BELIEVED_NS ? until : now + BELIEVED_NS;
}

unsigned arbiter_others(const struct arbiter *arbiter, uint64_t now, uint64_t since)
{
    unsigned others = 0;
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        const struct arbiter_entry *entry = &arbiter->file->entry[i];
        others += i != arbiter->own && fresh(entry, now) && busy_until(entry, now) > since;
    }
    return others;
}

uint64_t arbiter_clear_at(const struct arbiter *arbiter, uint64_t now)
{
    uint64_t latest = now;
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        const struct arbiter_entry *entry = &arbiter->file->entry[i];
        uint64_t until = i != arbiter->own && fresh(entry, now) ? busy_until(entry, now) : 0;
        latest = until > latest ? until : latest;
    }
    return latest;
}

/* One container that does not take part would launch into everybody's windows: then waiting is useless. */
static bool somebody_abstains(const struct arbiter *arbiter, uint64_t now)
{
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        const struct arbiter_entry *entry = &arbiter->file->entry[i];
        if (i != arbiter->own && fresh(entry, now) && (get(&entry->flags) & ARBITER_TAKES_PART) == 0)
            return true;
    }
    return false;
}

static bool somebody_wants(const struct arbiter *arbiter, uint64_t now)
{
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        const struct arbiter_entry *entry = &arbiter->file->entry[i];
        if (i != arbiter->own && fresh(entry, now) && (get(&entry->flags) & ARBITER_WANTS) != 0)
            return true;
    }
    return false;
}

static uint64_t window_ns(uint32_t weight)
{
    uint64_t window = CYCLE_NS * (weight < 100 ? weight : 100) / 100;
    return window > SHORTEST_WINDOW_NS ? window : SHORTEST_WINDOW_NS;
}

static void want(struct arbiter *arbiter, uint64_t now)
{
    struct arbiter_entry *own = &arbiter->file->entry[arbiter->own];
    __atomic_fetch_or(&own->flags, ARBITER_WANTS | ARBITER_TAKES_PART, __ATOMIC_SEQ_CST);
    if (get(&own->wants_since_ns) == 0)
        set(&own->wants_since_ns, now);
    set(&own->heartbeat_ns, now);
}

/* Whoever has waited longest is next. */
static bool somebody_was_first(const struct arbiter *arbiter, uint64_t now)
{
    uint64_t own = get(&arbiter->file->entry[arbiter->own].wants_since_ns);
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        const struct arbiter_entry *entry = &arbiter->file->entry[i];
        uint64_t since = get(&entry->wants_since_ns);
        if (i != arbiter->own && since != 0 && get(&entry->heartbeat_ns) + PRESENT_NS > now && fresh(entry, now) &&
            (own == 0 || since < own))
            return true;
    }
    return false;
}

static uint64_t granted(struct arbiter *arbiter)
{
    struct arbiter_entry *own = &arbiter->file->entry[arbiter->own];
    __atomic_fetch_and(&own->flags, ~ARBITER_WANTS, __ATOMIC_SEQ_CST);
    set(&own->wants_since_ns, 0);
    return 0;
}

uint64_t arbiter_ask(struct arbiter *arbiter, uint64_t now, uint32_t weight)
{
    struct arbiter_file *file = arbiter->file;
    uint64_t self = (uint64_t)arbiter->own + 1, owner = get(&file->owner);
    if (somebody_abstains(arbiter, now))
        return granted(arbiter);
    if (owner == self) {
        bool over = now >= get(&file->window_end_ns);
        if (!over || !somebody_wants(arbiter, now))
            return granted(arbiter);
        /* The window is over and others wait: what is queued runs to its end, then it is their turn. */
        uint64_t own_end = busy_until(&file->entry[arbiter->own], now);
        want(arbiter, now);
        if (own_end > now)
            return own_end - now;
        swap_if(&file->owner, &owner, 0);
        return LOOK_AGAIN_NS;
    }
    if (owner > 0 && owner <= ARBITER_ENTRIES) {
        const struct arbiter_entry *holder = &file->entry[owner - 1];
        uint64_t holder_end = busy_until(holder, now);
        if (fresh(holder, now) && holder_end > now) {
            want(arbiter, now);
            return holder_end - now;
        }
    }
    if (somebody_was_first(arbiter, now) || !swap_if(&file->owner, &owner, self)) {
        want(arbiter, now);
        return LOOK_AGAIN_NS;
    }
    set(&file->window_end_ns, now + window_ns(weight));
    return granted(arbiter);
}
