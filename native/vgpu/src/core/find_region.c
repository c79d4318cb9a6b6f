#include "core/find_region.h"

#include "core/process.h"
#include "core/quiet.h"
#include "core/region_format.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_region(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return false;
    struct region_probe probe = region_probe(fd);
    close(fd);
    return probe.kind == KIND_OURS || probe.kind == KIND_UPSTREAM || probe.kind == KIND_OLDER;
}

static bool ends_with_cache(const char *name)
{
    size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, ".cache") == 0;
}

static int regions_in(const char *directory, char *path, size_t bytes)
{
    DIR *entries = opendir(directory);
    if (entries == NULL)
        return 0;
    int found = 0;
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        char candidate[4096];
        int used = snprintf(candidate, sizeof candidate, "%s/%s", directory, entry->d_name);
        if (!ends_with_cache(entry->d_name) || used >= (int)sizeof candidate || !is_region(candidate))
            continue;
        if (++found == 1)
            snprintf(path, bytes, "%s", candidate);
    }
    closedir(entries);
    return found;
}

static void own_directory(char *directory, size_t bytes)
{
    Dl_info self;
    directory[0] = '\0';
    if (dladdr((void *)own_directory, &self) == 0 || self.dli_fname == NULL)
        return;
    snprintf(directory, bytes, "%s", self.dli_fname);
    char *slash = strrchr(directory, '/');
    if (slash != NULL)
        *slash = '\0';
    else
        directory[0] = '\0';
}

bool find_region(char *path, size_t bytes)
{
    char beside[4096];
    own_directory(beside, sizeof beside);
    const char *places[] = {beside, "/tmp/vgpu", "/usr/local/vgpu"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i][0] != '\0' && regions_in(places[i], path, bytes) == 1)
            return true;
    return false;
}

/* ---- the share of `pumice run` ---- */

#define VARIABLE "CUDA_DEVICE_MEMORY_SHARED_CACHE="
#define MARK (1ull << 62) /* in a limit on microseconds that limits nothing */
enum { LOWEST = 64, PID_BITS = 22, ENVIRONMENT_BYTES = 4 << 20 };

static bool path_of(const char *link, char *path, size_t bytes)
{
    ssize_t length = readlink(link, path, bytes - 1);
    path[length > 0 ? length : 0] = '\0';
    return path[0] == '/';
}

/* Of this process's descriptors the one that it was given with the share: a region, by its own name. */
static bool by_descriptor(char *path, size_t bytes)
{
    DIR *entries = opendir("/proc/self/fd");
    bool found = false;
    for (struct dirent *entry; entries != NULL && !found && (entry = readdir(entries)) != NULL;) {
        int fd = atoi(entry->d_name);
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        found = fd >= LOWEST && region_probe(fd).kind == KIND_OURS && path_of(link, path, bytes);
    }
    if (entries != NULL)
        closedir(entries);
    return found;
}

/* The first process of the share, which its descendants are marked with; 0 without a mark. */
static int leader(bool *lives)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_RTTIME, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || (limit.rlim_cur & MARK) == 0)
        return 0;
    uint64_t mark = limit.rlim_cur ^ MARK;
    int pid = (int)(mark & ((1u << PID_BITS) - 1));
    *lives = process_look(pid).start_time == mark >> PID_BITS;
    return pid;
}

static size_t read_whole(int fd, char *text, size_t bytes)
{
    size_t used = 0;
    for (ssize_t got = 1; got > 0 && used < bytes; used += (size_t)(got > 0 ? got : 0))
        got = quiet_read(fd, text + used, bytes - used);
    return used;
}

static bool by_environment(int pid, char *path, size_t bytes)
{
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/environ", pid);
    int fd = quiet_open(name, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? malloc(ENVIRONMENT_BYTES + 1) : NULL;
    size_t used = text != NULL ? read_whole(fd, text, ENVIRONMENT_BYTES) : 0;
    bool found = false;
    for (size_t at = 0; at < used && !found; at += strlen(text + at) + 1) {
        text[used] = '\0';
        found = strncmp(text + at, VARIABLE, sizeof VARIABLE - 1) == 0 &&
                snprintf(path, bytes, "%s", text + at + sizeof VARIABLE - 1) < (int)bytes;
    }
    free(text);
    if (fd >= 0)
        quiet_close(fd);
    return found;
}

enum inherited inherited_region(char *path, size_t bytes)
{
    bool lives = false;
    int pid = leader(&lives);
    if (by_descriptor(path, bytes) || (lives && by_environment(pid, path, bytes)))
        return INHERITED_FOUND;
    return pid != 0 ? INHERITED_LOST : INHERITED_NONE;
}
