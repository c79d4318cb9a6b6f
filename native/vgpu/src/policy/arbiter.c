#include "policy/arbiter.h"

#include "core/numbers.h"
#include "core/quiet.h"
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
    uint64_t beat = shared_get(&entry->heartbeat_ns);
    return shared_get(&entry->identity) != 0 && beat + STALE_NS > now && beat < now + STALE_NS;
}

static int take_entry(struct arbiter_file *file, uint64_t identity, uint64_t now)
{
    for (int i = 0; i < ARBITER_ENTRIES; i++)
        if (shared_get(&file->entry[i].identity) == identity)
            return i;
    for (int i = 0; i < ARBITER_ENTRIES; i++) {
        uint64_t before = shared_get(&file->entry[i].identity);
        if ((before == 0 || !fresh(&file->entry[i], now)) && shared_swap_if(&file->entry[i].identity, &before, identity)) {
            shared_set(&file->entry[i].busy_until_ns, 0);
            shared_set(&file->entry[i].flags, 0);
            shared_set(&file->entry[i].heartbeat_ns, now);
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
    if (shared_swap_if(&file->magic, &none, ARBITER_MAGIC)) {
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
    arbiter->own = shared_get(&file->magic) == ARBITER_MAGIC ? take_entry(file, identity != 0 ? identity : 1, now) : -1;
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
    uint64_t seen = shared_get(&own->busy_until_ns);
    while ((seen < busy_until || seen > now + BELIEVED_NS) && !shared_swap_if(&own->busy_until_ns, &seen, busy_until))
        ;
    shared_set(&own->weight, weight);
    /* Without a limit it never asks for a window: others must not wait as if it did. */
    shared_set(&own->flags, takes_part && weight > 0 && weight < 100 ? ARBITER_TAKES_PART : 0);
    shared_set(&own->heartbeat_ns, now);
}

void arbiter_answered(struct arbiter *arbiter, uint64_t busy_until)
{
    shared_set(&arbiter->file->entry[arbiter->own].busy_until_ns, busy_until);
}

static uint64_t busy_until(const struct arbiter_entry *entry, uint64_t now)
{
    uint64_t until = shared_get(&entry->busy_until_ns);
    return min_u64(until, now + BELIEVED_NS);
}

/* The next of the others that are alive, after the one given; NULL at first and at the end. */
static const struct arbiter_entry *next_other(const struct arbiter *arbiter, const struct arbiter_entry *entry, uint64_t now)
{
    const struct arbiter_entry *first = arbiter->file->entry;
    for (entry = entry == NULL ? first : entry + 1; entry < first + ARBITER_ENTRIES; entry++)
        if (entry != first + arbiter->own && fresh(entry, now))
            return entry;
    return NULL;
}

unsigned arbiter_others(const struct arbiter *arbiter, uint64_t now, uint64_t since)
{
    unsigned others = 0;
    for (const struct arbiter_entry *other = NULL; (other = next_other(arbiter, other, now)) != NULL;)
        others += busy_until(other, now) > since;
    return others;
}

uint64_t arbiter_clear_at(const struct arbiter *arbiter, uint64_t now)
{
    uint64_t latest = now;
    for (const struct arbiter_entry *other = NULL; (other = next_other(arbiter, other, now)) != NULL;)
        latest = max_u64(latest, busy_until(other, now));
    return latest;
}

/* Whether any other has that flag as given. */
static bool any_other(const struct arbiter *arbiter, uint64_t now, uint32_t flag, bool set)
{
    for (const struct arbiter_entry *other = NULL; (other = next_other(arbiter, other, now)) != NULL;)
        if (((shared_get(&other->flags) & flag) != 0) == set)
            return true;
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
    if (shared_get(&own->wants_since_ns) == 0)
        shared_set(&own->wants_since_ns, now);
    shared_set(&own->heartbeat_ns, now);
}

/* Whoever has waited longest is next. */
static bool somebody_was_first(const struct arbiter *arbiter, uint64_t now)
{
    uint64_t own = shared_get(&arbiter->file->entry[arbiter->own].wants_since_ns);
    for (const struct arbiter_entry *other = NULL; (other = next_other(arbiter, other, now)) != NULL;) {
        uint64_t since = shared_get(&other->wants_since_ns);
        if (since != 0 && shared_get(&other->heartbeat_ns) + PRESENT_NS > now && (own == 0 || since < own))
            return true;
    }
    return false;
}

static uint64_t granted(struct arbiter *arbiter)
{
    struct arbiter_entry *own = &arbiter->file->entry[arbiter->own];
    __atomic_fetch_and(&own->flags, ~ARBITER_WANTS, __ATOMIC_SEQ_CST);
    shared_set(&own->wants_since_ns, 0);
    return 0;
}

uint64_t arbiter_ask(struct arbiter *arbiter, uint64_t now, uint32_t weight)
{
    struct arbiter_file *file = arbiter->file;
    uint64_t self = (uint64_t)arbiter->own + 1, owner = shared_get(&file->owner);
    if (any_other(arbiter, now, ARBITER_TAKES_PART, false)) /* who does not take part would launch into everybody's windows */
        return granted(arbiter);
    if (owner == self) {
        bool over = now >= shared_get(&file->window_end_ns);
        if (!over || !any_other(arbiter, now, ARBITER_WANTS, true))
            return granted(arbiter);
        /* The window is over and others wait: what is queued runs to its end, then it is their turn. */
        uint64_t own_end = busy_until(&file->entry[arbiter->own], now);
        want(arbiter, now);
        if (own_end > now)
            return own_end - now;
        shared_swap_if(&file->owner, &owner, 0);
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
    if (somebody_was_first(arbiter, now) || !shared_swap_if(&file->owner, &owner, self)) {
        want(arbiter, now);
        return LOOK_AGAIN_NS;
    }
    shared_set(&file->window_end_ns, now + window_ns(weight));
    return granted(arbiter);
}
