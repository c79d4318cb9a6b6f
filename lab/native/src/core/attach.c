/* Finding and mapping DIR/state. A file that is missing, short, foreign or of another version is no machine: the caller
 * answers as a machine without a driver does. */
#define _GNU_SOURCE
#include "core.h"
#include "old_calls.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct machine_state *the_machine;

static pthread_mutex_t attaching = PTHREAD_MUTEX_INITIALIZER;

static bool boot_id_read(uint64_t id[2])
{
    char text[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    id[0] = id[1] = 0;
    for (ssize_t i = 0, nibbles = 0; i < n && nibbles < 32; i++) {
        const char *at = text[i] ? strchr("0123456789abcdef", text[i]) : NULL;
        if (!at)
            continue;
        static const char digits[] = "0123456789abcdef";
        id[nibbles / 16] = id[nibbles / 16] << 4 | (uint64_t)(strchr(digits, text[i]) - digits);
        nibbles++;
    }
    return id[0] || id[1];
}

/* After a reboot the locks name holders that are gone, and so are all processes. */
static void forget_the_past(struct machine_state *m)
{
    memset(m->processes, 0, sizeof m->processes);
    memset(m->clock.participants, 0, sizeof m->clock.participants);
    m->clock.participant_high = 0;
    m->process_high = 0;
    for (unsigned c = 0; c < MACHINE_CARDS; c++)
        memset(m->card[c].lanes, 0, sizeof m->card[c].lanes);
}

/* Under flock, because the locks of the machine do not exist yet. */
static void make_ready(struct machine_state *m, int fd)
{
    uint64_t boot[2] = {0, 0};
    bool known = boot_id_read(boot);
    bool rebooted = known && (m->boot_id[0] != boot[0] || m->boot_id[1] != boot[1]);
    if (LOAD(&m->locks_ready) && !rebooted)
        return;
    while (flock(fd, LOCK_EX) != 0)
        ;
    rebooted = known && (m->boot_id[0] != boot[0] || m->boot_id[1] != boot[1]);
    if (!m->locks_ready || rebooted) {
        lock_make(&m->lock);
        lock_make(&m->clock.lock);
        for (unsigned c = 0; c < MACHINE_CARDS; c++)
            lock_make(&m->card[c].lock);
        forget_the_past(m);
        m->boot_id[0] = boot[0];
        m->boot_id[1] = boot[1];
        STORE(&m->locks_ready, 1);
    }
    flock(fd, LOCK_UN);
}

static bool state_path(const char *dir, char *path, size_t size)
{
    if (!dir || !*dir)
        dir = getenv("PUMICE_MACHINE");
    if (!dir || !*dir)
        dir = "/run/pumice/machine";
    return snprintf(path, size, "%s/state", dir) < (int)size;
}

static bool well_formed(const struct machine_state *m)
{
    return m->magic == MACHINE_MAGIC && m->version == MACHINE_VERSION && m->size == MACHINE_SIZE &&
           m->cards <= MACHINE_CARDS && m->clock.mode <= MACHINE_TIME_VIRTUAL;
}

struct machine_state *machine_map(const char *dir)
{
    char path[4096];
    if (!state_path(dir, path, sizeof path))
        return NULL;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat st;
    struct machine_state *m = NULL;
    if (status_of_file(fd, &st) == 0 && (uint64_t)st.st_size >= MACHINE_SIZE) {
        void *at = mmap(NULL, MACHINE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED)
            m = at;
    }
    if (m && !well_formed(m)) {
        machine_unmap(m);
        m = NULL;
    }
    if (m)
        make_ready(m, fd);
    close(fd);
    return m;
}

void machine_unmap(struct machine_state *m)
{
    munmap(m, MACHINE_SIZE);
}

static struct stat attached_to;

static bool same_file(void)
{
    char path[4096];
    struct stat st;
    return state_path(NULL, path, sizeof path) && status_of_path(path, &st) == 0 && st.st_ino == attached_to.st_ino &&
           st.st_dev == attached_to.st_dev;
}

static void attach_now(void)
{
    char path[4096];
    if (!state_path(NULL, path, sizeof path) || status_of_path(path, &attached_to) != 0)
        return;
    struct machine_state *m = machine_map(NULL);
    if (!m)
        return;
    visible_look(m);
    STORE(&the_machine, m);
}

bool machine_attach(void)
{
    if (LOAD(&the_machine))
        return true;
    pthread_mutex_lock(&attaching);
    if (!the_machine)
        attach_now();
    pthread_mutex_unlock(&attaching);
    return LOAD(&the_machine) != NULL;
}

/* The old mapping stays: somebody may still look at it. */
bool machine_attach_again(void)
{
    pthread_mutex_lock(&attaching);
    if (!the_machine || !same_file()) {
        STORE(&the_machine, NULL);
        attach_now();
    }
    pthread_mutex_unlock(&attaching);
    return LOAD(&the_machine) != NULL;
}

EXPORT struct machine_state *pumice_machine_state(void)
{
    return machine_attach() ? the_machine : NULL;
}

/* Whoever reads the accounts from outside wants them as of now. */
static int settle(void)
{
    int count = process_reap(true);
    for (unsigned card = 0; card < the_machine->cards; card++) {
        card_lock(card);
        for (unsigned lane = 0; lane < MACHINE_LANES; lane++)
            lane_advance(card, lane, machine_now());
        card_unlock(card);
    }
    return count;
}

EXPORT int pumice_machine_reap(const char *dir)
{
    if (!dir || !*dir)
        return machine_attach() ? settle() : -1;
    struct machine_state *m = machine_map(dir);
    if (!m)
        return -1;
    pthread_mutex_lock(&attaching);
    struct machine_state *before = the_machine;
    STORE(&the_machine, m);
    int count = settle();
    STORE(&the_machine, before);
    pthread_mutex_unlock(&attaching);
    machine_unmap(m);
    return count;
}
