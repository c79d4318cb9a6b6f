#include "core/region_format.h"

#include "core/quiet.h"
#include "core/process.h"
#include "vgpu/region_legacy.h"

#include <string.h>
#include <unistd.h>

static bool read_exactly(int fd, void *into, size_t bytes, off_t at)
{
    return pread(fd, into, bytes, at) == (ssize_t)bytes;
}

/* Sizes at which a file without the magic is taken for a region that lost it, and may be formatted. */
static bool size_of_a_region(off_t bytes)
{
    return bytes == 0 || bytes == (off_t)REGION_FILE_BYTES || bytes == (off_t)REGION_WHOLE_BYTES || bytes == (off_t)REGION_V1_BYTES + 1;
}

static enum region_kind kind_of_v1(uint32_t minor, const uint32_t *ext, off_t bytes)
{
    if (minor != REGION_MINOR || bytes <= (off_t)REGION_V1_BYTES || bytes == (off_t)REGION_V1_BAD_B_BYTES + 1)
        return KIND_OLDER;
    if (bytes < (off_t)REGION_FILE_BYTES)
        return bytes == (off_t)REGION_V1_BYTES + 1 ? KIND_UPSTREAM : KIND_OLDER;
    bool ours = ext != NULL && ext[0] == EXT_MAGIC && ext[1] == EXT_VERSION && ext[2] == REGION_EXT_BYTES;
    return ours ? KIND_OURS : KIND_UPSTREAM;
}

struct region_probe region_judge(const uint32_t head[3], const uint32_t ext[3], off_t bytes)
{
    struct region_probe probe = {KIND_OLDER, -1, bytes};
    if (head[0] != REGION_MAGIC) {
        probe.kind = size_of_a_region(bytes) ? KIND_EMPTY : KIND_FOREIGN;
    } else if (bytes == (off_t)REGION_V0_BYTES + 1) {
        probe.layout = 0;
    } else if (head[1] == REGION_MAJOR) {
        probe.kind = kind_of_v1(head[2], ext, bytes);
        bool full = bytes >= (off_t)REGION_V1_BYTES && bytes != (off_t)REGION_V1_BAD_B_BYTES + 1;
        probe.layout = full && (head[2] == 1 || head[2] == 2) ? 10 + (int)head[2] : -1;
    }
    return probe;
}

struct region_probe region_probe(int fd)
{
    struct stat status;
    if (file_status(fd, &status) != 0 || !S_ISREG(status.st_mode))
        return (struct region_probe){KIND_FOREIGN, -1, 0};
    uint32_t head[3] = {0, 0, 0}, ext[3];
    if (!read_exactly(fd, head, sizeof head, 0))
        head[0] = 0;
    bool extended = read_exactly(fd, ext, sizeof ext, REGION_EXT_OFFSET);
    return region_judge(head, extended ? ext : NULL, status.st_size);
}

static bool pid_lives(int pid)
{
    return pid > 0 && !process_look(pid).gone;
}

bool region_older_is_live(int fd, int layout)
{
    off_t first = layout == 0 ? (off_t)offsetof(struct v0_region, procs) : (off_t)offsetof(struct region, procs);
    off_t stride = layout == 0 ? (off_t)sizeof(struct v0_slot) : (off_t)sizeof(struct region_slot);
    for (int slot = 0; slot < REGION_SLOTS; slot++) {
        int32_t pid;
        if (!read_exactly(fd, &pid, sizeof pid, first + slot * stride))
            break;
        if (pid_lives(pid))
            return true;
    }
    return false;
}

bool region_read_limits(int fd, const struct region_probe *probe, uint64_t *memory, uint64_t *sm)
{
    if (probe->layout < 0)
        return false;
    size_t bytes = sizeof(uint64_t) * REGION_DEVICES;
    bool oldest = probe->layout == 0;
    return read_exactly(fd, memory, bytes, oldest ? offsetof(struct v0_region, limit) : offsetof(struct region, limit)) &&
           read_exactly(fd, sm, bytes, oldest ? offsetof(struct v0_region, sm_limit) : offsetof(struct region, sm_limit));
}

/* A fresh process-shared glibc semaphore of value 1, which upstream processes wait on. */
static void post_semaphore(unsigned char *sem)
{
    memset(sem, 0, REGION_SEM_BYTES);
    sem[0] = 1;
    sem[8] = 0x80;
}

/* Magic and version, which come last. */
void region_format_heads(struct region *region, struct region_ext *ext)
{
    if (region != NULL) {
        shared_set(&region->major_version, REGION_MAJOR);
        shared_set(&region->minor_version, REGION_MINOR);
        shared_set(&region->initialized_flag, REGION_MAGIC);
    }
    if (ext != NULL) {
        shared_set(&ext->version, EXT_VERSION);
        shared_set(&ext->bytes, REGION_EXT_BYTES);
        shared_set(&ext->magic, EXT_MAGIC);
    }
}

void region_format(struct region *region, const struct region_limits *limits, bool blank, bool (*keep)(int slot, void *data), void *data)
{
    shared_set(&region->initialized_flag, 0);
    int highest = 0;
    for (int slot = 0; slot < REGION_SLOTS && !blank; slot++) {
        if (keep != NULL && region->procs[slot].pid != 0 && keep(slot, data))
            highest = slot + 1;
        else
            memset(&region->procs[slot], 0, sizeof region->procs[slot]);
    }
    region->sm_init_flag = 0;
    region->owner_pid = 0;
    region->device_num = 0;
    memset(region->uuids, 0, sizeof region->uuids);
    memcpy(region->limit, limits->memory, sizeof region->limit);
    memcpy(region->sm_limit, limits->sm, sizeof region->sm_limit);
    region->utilization_switch = 1;
    region->recent_kernel = 2;
    region->priority = limits->priority;
    region->last_kernel_time = 0;
    post_semaphore(region->sem);
    post_semaphore(region->sem_postinit);
    shared_set(&region->proc_num, highest);
    region_format_heads(region, NULL);
}

void region_format_ext(struct region_ext *ext, bool blank, bool (*keep)(int slot, void *data), void *data)
{
    ext->magic = 0;
    memset(ext->warned, 0, sizeof ext->warned);
    memset(ext->memory_locks, 0, sizeof ext->memory_locks);
    memset(&ext->waits, 0, sizeof ext->waits);
    memset(ext->devices, 0, sizeof ext->devices);
    for (int slot = 0; slot < REGION_SLOTS && !blank; slot++)
        if (keep == NULL || !keep(slot, data))
            memset(&ext->slots[slot], 0, sizeof ext->slots[slot]);
    region_format_heads(NULL, ext);
}
