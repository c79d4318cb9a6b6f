/* A process that finds an MPS control daemon in CUDA_MPS_PIPE_DIRECTORY is a client of its server, from cuInit to its end: it
 * sees the server's devices, and each context is held to the smaller of the server's bounds and its own two variables. Where nobody
 * answers it runs as without MPS (nvidia-cuda-mps-control(1)). What is said over the sockets: ../mps/mps.h. */
#define _GNU_SOURCE
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
    int connection; /* stays open: its end is how the server hears of ours */
    uint32_t server; /* 0: no MPS */
    double percent;
    int count;
    struct { char uuid[48]; uint64_t mib; } devices[MACHINE_CARDS];
} mps = {.connection = -1};

static int reach(const char *name)
{
    const char *place = getenv("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un where = {.sun_family = AF_UNIX};
    int length = snprintf(where.sun_path, sizeof where.sun_path, "%s/%s", place && *place ? place : "/tmp/nvidia-mps", name);
    if (length < 0 || (size_t)length >= sizeof where.sun_path)
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&where, sizeof where) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool heard(int fd, char *line, size_t size)
{
    size_t length = 0;
    while (length + 1 < size && read(fd, line + length, 1) == 1 && line[length] != '\n')
        length++;
    bool whole = length + 1 < size && line[length] == '\n';
    line[length] = 0;
    return whole;
}

/* The connection to `name` with the first line of its answer, or -1. */
static int asked(const char *name, const char *what, char *line, size_t size)
{
    int fd = reach(name);
    if (fd >= 0 && (send(fd, what, strlen(what), MSG_NOSIGNAL) < 0 || !heard(fd, line, size))) {
        close(fd);
        return -1;
    }
    return fd;
}

static CUresult join(const char *server)
{
    char line[128];
    int fd = asked(server, "join\n", line, sizeof line);
    if (fd < 0)
        return CUDA_ERROR_MPS_CONNECTION_FAILED;
    if (sscanf(line, "ok %u %lf", &mps.server, &mps.percent) != 2) {
        close(fd);
        return strcmp(line, "full") == 0 ? CUDA_ERROR_MPS_MAX_CLIENTS_REACHED : CUDA_ERROR_MPS_CONNECTION_FAILED;
    }
    while (heard(fd, line, sizeof line) && strcmp(line, "end") != 0) {
        unsigned long long mib;
        if (mps.count < MACHINE_CARDS && sscanf(line, "device %47s %llu", mps.devices[mps.count].uuid, &mib) == 2)
            mps.devices[mps.count++].mib = mib;
    }
    mps.connection = fd;
    return CUDA_SUCCESS;
}

CUresult mps_join(void)
{
    for (;;) {
        char line[128];
        int fd = asked("control", "client\n", line, sizeof line);
        if (fd < 0)
            return CUDA_SUCCESS;
        close(fd);
        if (strncmp(line, "server-", 7) == 0)
            return join(line);
        if (strcmp(line, "wait") != 0)
            return CUDA_ERROR_MPS_CONNECTION_FAILED;
        usleep(20000); /* another user's clients are served */
    }
}

/* The server's ordinal of a device, or -1: it is not among the server's. */
static int ordinal_of(const struct device *d)
{
    for (int i = 0; i < mps.count; i++) {
        unsigned char uuid[16];
        if (strcmp(mps.devices[i].uuid, "-") == 0)
            continue;
        uuid_bytes(mps.devices[i].uuid, uuid);
        if (memcmp(uuid, d->uuid, sizeof uuid) == 0)
            return i;
    }
    return -1;
}

static bool restricted(void)
{
    return mps.count > 0 && strcmp(mps.devices[0].uuid, "-") != 0;
}

int mps_visible(struct device *devices, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++)
        if (!mps.server || !restricted() || ordinal_of(&devices[i]) >= 0)
            devices[kept++] = devices[i];
    return kept;
}

/* "0=2G,1=512M" or by UUID: the MiB of one device, 0 where it says nothing. */
static uint64_t wished(int ordinal, const struct device *d)
{
    const char *text = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    char copy[1024];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    char *rest = NULL;
    for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        char *equals = strchr(item, '='), *end;
        if (!equals)
            continue;
        *equals = 0;
        unsigned long index = strtoul(item, &end, 10);
        unsigned char uuid[16];
        uuid_bytes(item, uuid);
        bool named = end != item && !*end ? index == (unsigned long)ordinal : memcmp(uuid, d->uuid, sizeof uuid) == 0;
        unsigned long long value = strtoull(equals + 1, &end, 10);
        if (named && (*end == 'G' || *end == 'M'))
            return *end == 'G' ? value << 10 : value;
    }
    return 0;
}

void mps_bind(struct machine_account *account, const struct device *d, int ordinal)
{
    if (!mps.server)
        return;
    int there = restricted() ? ordinal_of(d) : ordinal;
    uint64_t own = wished(ordinal, d), limit = there >= 0 && there < mps.count ? mps.devices[there].mib : 0;
    limit = own && (!limit || own < limit) ? own : limit;
    const char *text = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    double percent = mps.percent, mine = text ? atof(text) : 0;
    percent = mine > 0 && mine < percent ? mine : percent;
    account->mps_limit_bytes = limit * MIB;
    account->mps_percent = percent < 100 ? (uint32_t)(percent < 1 ? 1 : percent + 0.5) : 0;
    account->mps_server = mps.server;
}
