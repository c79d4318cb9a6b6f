#include "core/attach.h"

#include "core/quiet.h"
#include "core/granted.h"
#include "core/shared_allocations.h"
#include "core/ledger.h"
#include "core/lock.h"
#include "core/log.h"
#include "core/region_format.h"
#include "core/republish.h"
#include "core/find_region.h"
#include "core/slots.h"
#include "core/waits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define DEFAULT_PATH "/tmp/cudevshr.cache"
enum { CREATION_WAITS = 100 }; /* of 50 ms at most */

/* O_EXCL for creation: in a sticky directory a plain O_CREAT is refused on a file that another user made. */
static int open_region(const char *path)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    for (int attempt = 0; attempt < 3; attempt++) {
        int fd = open(path, flags);
        if (fd >= 0 || errno != ENOENT)
            return fd < 0 ? fd : region_fd_move_up(fd);
        fd = open(path, flags | O_CREAT | O_EXCL, 0666);
        if (fd >= 0) {
            fchmod(fd, 0666); /* the umask is the program's own; other users of the container must get in */
            return region_fd_move_up(fd);
        }
        if (errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Every page must have its block before it is mapped: a store into a hole of a full disk would kill the program. */
static bool reserve_blocks(int fd, off_t bytes, off_t present)
{
    if (fallocate(fd, 0, 0, bytes) == 0)
        return true;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return false;
    char zeros[4096] = {0};
    for (off_t at = present; at < bytes;) {
        size_t span = bytes - at < (off_t)sizeof zeros ? (size_t)(bytes - at) : sizeof zeros;
        ssize_t wrote = pwrite(fd, zeros, span, at);
        if (wrote <= 0)
            return false;
        at += wrote;
    }
    return true;
}

static bool map_file(struct region_map *map, size_t bytes)
{
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map->fd, 0);
    if (base == MAP_FAILED)
        return false;
    map->region = base;
    map->mapped_bytes = bytes;
    map->shared = true;
    if (bytes >= REGION_FILE_BYTES) {
        map->ext = (struct region_ext *)((char *)base + REGION_EXT_OFFSET);
        map->ext_shared = true;
    }
    if (bytes >= REGION_WHOLE_BYTES) {
        map->shared_allocations = (struct region_shared_allocations *)((char *)base + REGION_FILE_BYTES);
        map->fair = (struct region_fair *)((char *)map->shared_allocations + REGION_SHARED_BYTES);
    }
    return true;
}

static bool private_ext(struct region_map *map)
{
    void *base = mmap(NULL, REGION_EXT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return false;
    map->ext = base;
    map->ext_shared = false;
    region_format_ext(map->ext, true, NULL, NULL);
    return true;
}

static bool still_lives(int slot, void *data)
{
    return lock_held_elsewhere(*(int *)data, LOCK_ALIVE(slot), 1);
}

static struct region_limits limits_of(const struct config *config)
{
    struct region_limits limits;
    memcpy(limits.memory, config->memory_limit, sizeof limits.memory);
    memcpy(limits.sm, config->sm_limit, sizeof limits.sm);
    limits.priority = config->priority;
    return limits;
}

/* An older file's limits outlive it where the environment has nothing to say. */
static struct region_limits limits_for(int fd, const struct region_probe *probe, const struct config *config)
{
    struct region_limits limits = limits_of(config);
    uint64_t memory[REGION_DEVICES], sm[REGION_DEVICES];
    if (region_read_limits(fd, probe, memory, sm)) {
        if (!config->any_memory_variable)
            memcpy(limits.memory, memory, sizeof memory);
        if (!config->any_sm_variable)
            memcpy(limits.sm, sm, sizeof sm);
    }
    return limits;
}

/* Neither new nor an older layout: what is there says that it is a region and is none. Zeros are a creation cut short. */
static bool head_lies(int fd, const struct region_probe *probe)
{
    uint32_t first = 0;
    return probe->layout < 0 && pread(fd, &first, sizeof first, 0) == (ssize_t)sizeof first && first != 0;
}

static const char *create_region(struct region_map *map, const struct region_probe *probe, const struct config *config)
{
    if (probe->kind == KIND_OLDER && region_older_is_live(map->fd, probe->layout))
        return "it has an older layout and processes that still use it";
    bool lied = head_lies(map->fd, probe);
    struct region_limits limits = limits_for(map->fd, probe, config);
    off_t bytes = probe->bytes > (off_t)REGION_WHOLE_BYTES ? probe->bytes : (off_t)REGION_WHOLE_BYTES;
    if (!reserve_blocks(map->fd, bytes, probe->bytes))
        return strerror(errno);
    if (!map_file(map, REGION_WHOLE_BYTES))
        return strerror(errno);
    bool same_layout = probe->bytes >= (off_t)REGION_FILE_BYTES;
    region_format_ext(map->ext, probe->bytes == 0, same_layout ? still_lives : NULL, &map->fd);
    memcpy(map->ext->made_limit, limits.memory, sizeof limits.memory);
    memcpy(map->ext->made_sm_limit, limits.sm, sizeof limits.sm);
    region_format(map->region, &limits, probe->bytes == 0, same_layout ? still_lives : NULL, &map->fd);
    shared_allocations_format(map, same_layout ? still_lives : NULL, &map->fd);
    if (lied)
        log_error("region %s: its magic, version or size lies; it is made anew", map->path);
    return NULL;
}

static const char *join_region(struct region_map *map, const struct region_probe *probe)
{
    size_t bytes = probe->kind == KIND_OURS ? REGION_WHOLE_BYTES : REGION_V1_BYTES;
    bool whole = reserve_blocks(map->fd, (off_t)bytes, probe->bytes < (off_t)bytes ? probe->bytes : (off_t)bytes);
    if (!whole && probe->kind == KIND_OURS) /* an earlier version made it, and there is no room for more */
        whole = reserve_blocks(map->fd, (off_t)(bytes = REGION_FILE_BYTES), (off_t)REGION_FILE_BYTES);
    if (!whole)
        return strerror(errno);
    if (!map_file(map, bytes) || (map->ext == NULL && !private_ext(map)))
        return strerror(errno);
    return NULL;
}

/* A mark that lies would hide live processes from every sum. */
static void repair_mark(const struct region_map *map)
{
    int slot = REGION_SLOTS;
    while (slot > 0 && slot_is_free(map, slot - 1))
        slot--;
    slots_raise_mark(map->region, slot);
}

/* A limit that somebody changed since the region was made, `pumice limit` or a monitor, is no conflict with the environment. */
static bool is_conflict(const struct region_map *map, const struct config *config, int device)
{
    uint64_t holds = shared_get(&map->region->limit[device]), asked = config->memory_limit[device];
    return config->any_memory_variable && holds != asked && !(map->ext_shared && map->ext->made_limit[device] == asked);
}

/* Whoever reads the region is told what holds, whatever somebody has written there. */
static void show_granted(const struct region_map *map, const struct config *config)
{
    for (int i = 0; config->page != NULL && i < REGION_DEVICES; i++) {
        shared_set(&map->region->limit[i], config->memory_limit[i]);
        shared_set(&map->region->sm_limit[i], config->sm_limit[i]);
    }
}

static void tell_differences(const struct region_map *map, const struct config *config)
{
    const struct region *region = map->region;
    for (int i = 0; i < REGION_DEVICES; i++)
        if (is_conflict(map, config, i)) {
            warn_once(map, LOG_LEVEL_WARNING, WARN_OTHER_LIMIT,
                      "device %d: the region's memory limit of %llu bytes holds, not the %llu of the environment", i,
                      (unsigned long long)region->limit[i], (unsigned long long)config->memory_limit[i]);
            return;
        }
    for (int i = 0; i < REGION_DEVICES; i++)
        if (config->any_sm_variable && region->sm_limit[i] != config->sm_limit[i]) {
            log_info("device %d: the region's core limit of %llu %% holds", i, (unsigned long long)region->sm_limit[i]);
            return;
        }
}

void region_repair(struct region_map *map, const struct config *config)
{
    if (map->ledger == NULL || !region_has_books(map))
        return;
    region_format_heads(map->region, map->ext);
    show_granted(map, config);
    slot_republish(map);
}

/*
 * Under a limits page the plugin made the file for this library alone: what does not look like ours is ours and damaged, and is made anew
 * beneath those who live in it.
 */
static struct region_probe probe_of(const struct region_map *map)
{
    struct region_probe probe = region_probe(map->fd);
    if (map->page != NULL && probe.kind != KIND_OURS)
        probe = (struct region_probe){KIND_EMPTY, -1, probe.bytes};
    return probe;
}

/* The magic is written last and never again, so whoever reads it may join without a lock. */
static bool is_ready(const struct region_probe *probe)
{
    return probe->kind == KIND_OURS || probe->kind == KIND_UPSTREAM;
}

/* On a busy machine whoever creates it may be without a processor for long, and each that gave up would have the limit for itself. */
static enum lock_verdict await_creation(const struct region_map *map, struct region_probe *probe)
{
    enum lock_verdict verdict = LOCK_BUSY;
    for (int attempt = 0; attempt < CREATION_WAITS && verdict == LOCK_BUSY && !is_ready(probe); attempt++) {
        verdict = lock_wait(map->fd, 0, LOCK_UPSTREAM_BYTES);
        *probe = probe_of(map);
    }
    return verdict;
}

/* Under the lock that an upstream process takes while it creates the region. Another one may have created it meanwhile. */
static const char *make_ready(struct region_map *map, struct region_probe *probe, const struct config *config)
{
    enum lock_verdict verdict = await_creation(map, probe);
    if (verdict != LOCK_TAKEN)
        return is_ready(probe) ? NULL : "its lock cannot be had";
    const char *problem = NULL;
    if (!is_ready(probe) && probe->kind != KIND_FOREIGN)
        problem = create_region(map, probe, config);
    lock_release(map->fd, 0, LOCK_UPSTREAM_BYTES);
    return problem;
}

static const char *attach_opened(struct region_map *map, const struct config *config)
{
    struct region_probe probe = probe_of(map);
    const char *problem = is_ready(&probe) || probe.kind == KIND_FOREIGN ? NULL : make_ready(map, &probe, config);
    if (problem == NULL && probe.kind == KIND_FOREIGN)
        problem = "it is not a region";
    if (problem == NULL && map->region == NULL)
        problem = join_region(map, &probe);
    if (problem == NULL) {
        repair_mark(map);
        show_granted(map, config);
        tell_differences(map, config);
    }
    return problem;
}

/* NULL when attached, else the reason why not; then nothing is left open or mapped. */
static const char *attach_file(struct region_map *map, const struct config *config)
{
    map->fd = open_region(map->path);
    if (map->fd < 0)
        return errno == ELOOP ? "it is a symbolic link" : strerror(errno);
    struct stat status;
    if (file_status(map->fd, &status) == 0) {
        map->device = status.st_dev;
        map->inode = status.st_ino;
    }
    const char *problem = attach_opened(map, config);
    if (problem != NULL)
        region_forget(map);
    return problem;
}

static void attach_private(struct region_map *map, const struct config *config)
{
    struct region_limits limits = limits_of(config);
    int fd = open(map->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0) {
        struct region_probe probe = region_probe(fd);
        limits = limits_for(fd, &probe, config);
        close(fd);
    }
    void *base = mmap(NULL, REGION_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return; /* no memory at all: the callers see a NULL region and stay out of the way */
    map->region = base;
    map->ext = (struct region_ext *)((char *)base + REGION_EXT_OFFSET);
    map->mapped_bytes = REGION_FILE_BYTES;
    region_format_ext(map->ext, true, NULL, NULL);
    region_format(map->region, &limits, true, NULL, NULL);
}

enum place { PLACE_KNOWN, PLACE_NONE, PLACE_LOST };

/* NONE: nobody tells of a limit, so there is nothing to share, and no file is left that others would join. */
static enum place find_place(struct region_map *map, const struct config *config)
{
    snprintf(map->path, sizeof map->path, "%s", config->region_path);
    if (map->path[0] != '\0')
        return PLACE_KNOWN;
    enum inherited inherited = inherited_region(map->path, sizeof map->path);
    if (inherited == INHERITED_FOUND || find_region(map->path, sizeof map->path))
        return PLACE_KNOWN;
    snprintf(map->path, sizeof map->path, "%s", DEFAULT_PATH);
    if (inherited == INHERITED_LOST)
        return PLACE_LOST;
    bool limits = config->any_memory_variable || config->any_sm_variable || config->complaint[0] != '\0';
    return limits || access(DEFAULT_PATH, F_OK) == 0 ? PLACE_KNOWN : PLACE_NONE;
}

static void attach_alone(struct region_map *map, const struct config *config)
{
    attach_private(map, config);
    if (map->region != NULL)
        slot_claim(map);
}

static void attach_anywhere(struct region_map *map, const struct config *config)
{
    enum place place = find_place(map, config);
    if (place != PLACE_KNOWN) {
        if (place == PLACE_LOST) {
            map->page = granted_nothing();
            log_error("the share of `pumice run` that this process belongs to cannot be found: environment and open files are lost, and "
                      "its first process has ended; there is no memory to be had");
        }
        attach_alone(map, config);
        return;
    }

    const char *problem = attach_file(map, config);
    if (problem == NULL && slot_claim(map) < 0) {
        problem = "all 1024 process slots are taken";
        region_forget(map);
    }
    if (problem != NULL) {
        log_error("region %s: %s; %s", map->path, problem,
                  map->page == NULL ? "limits hold for this process alone" : "what was granted cannot be shared, and there is no memory to be had");
        if (map->page != NULL)
            map->page = granted_nothing();
        attach_alone(map, config);
    } else if (map->page != NULL && ledger_open(map)) {
        map->own = (struct region_slot){.pid = getpid()};
        slot_republish(map);
    }
    if (config->complaint[0] != '\0' && map->region != NULL)
        warn_once(map, LOG_LEVEL_ERROR, WARN_BAD_VARIABLE, "%s; the next source counts, and without one there is no memory to be had", config->complaint);
}

void region_attach(struct region_map *map, const struct config *config)
{
    memset(map, 0, sizeof *map);
    map->fd = map->slot = -1;
    map->page = config->page;
    attach_anywhere(map, config);
    if (map->region != NULL)
        waits_go_to(&map->ext->waits);
}
