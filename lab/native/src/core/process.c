/* Processes of the machine: one slot each, given back at exit or when found dead.
 *
 * A process is known by pid, start time and pid namespace, so a reused pid is somebody else. Whoever wants memory or a list
 * of processes first takes the dead ones out, as the driver does when a process's descriptors close. */
#define _GNU_SOURCE
#include "core.h"
#include "old_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PF_EXITING 4u /* no more code of the program runs in this thread */

/* The start of the process, in clock ticks; 0: no such process, or it ended and only its parent has not noticed. A leader that is gone
 * while other threads run is alive. Fields of /proc/PID/stat: 3 state, 9 flags, 20 threads, 22 start. */
static uint64_t start_ticks_of(uint32_t pid, int *error)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    *error = fd < 0 ? errno : 0;
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    if (n <= 0)
        *error = n < 0 ? errno : ESRCH;
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    const char *at = strrchr(text, ')'); /* the name may hold anything, brackets included */
    char state;
    unsigned flags;
    long threads;
    unsigned long long start;
    if (!at || sscanf(at + 1, " %c %*d %*d %*d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld %*d %llu", &state, &flags, &threads,
                      &start) != 4)
        return 0;
    bool leader_gone = state == 'Z' || state == 'X' || flags & PF_EXITING;
    return leader_gone && threads <= 1 ? 0 : start;
}

struct identity identity_self(void)
{
    static _Thread_local struct identity self;
    uint32_t pid = (uint32_t)getpid();
    if (self.pid != pid) {
        int error;
        struct stat st;
        self.start_ticks = start_ticks_of(pid, &error);
        self.pid_namespace = status_of_path("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
        self.pid = pid;
    }
    return self;
}

bool identity_alive(uint32_t pid, uint64_t start_ticks, uint64_t pid_namespace)
{
    struct identity self = identity_self();
    if (pid_namespace != self.pid_namespace)
        return true; /* its pid means nothing here; somebody of its own namespace will see */
    int error;
    uint64_t ticks = start_ticks_of(pid, &error);
    if (ticks == 0)
        return error != 0 && error != ENOENT && error != ESRCH; /* no descriptors left is not a death */
    return start_ticks == 0 || ticks == start_ticks;
}

static void remember(struct machine_process *p, bool killed)
{
    struct machine_state *m = the_machine;
    const struct machine_past *newest = &m->history[(m->history_sequence + MACHINE_HISTORY - 1) % MACHINE_HISTORY];
    if (newest->sequence && newest->pid == p->pid && newest->start_ticks == p->start_ticks)
        return; /* whoever wrote it was killed before the slot was free */
    struct machine_past *past = &m->history[m->history_sequence % MACHINE_HISTORY];
    memset(past, 0, sizeof *past);
    past->pid = p->pid;
    past->start_ticks = p->start_ticks;
    past->killed = killed;
    past->ended_ns = machine_now();
    memcpy(past->name, p->name, sizeof past->name);
    for (unsigned c = 0; c < m->cards; c++) {
        const struct machine_account *a = &p->accounts[c];
        past->cards[c] = (struct machine_summary){
            .peak_bytes = a->peak_bytes, .leaked_bytes = a->requested_bytes, .busy_ns = a->served_ns,
            .submitted_ns = a->submitted_ns, .launches = a->launches};
    }
    STORE(&past->sequence, m->history_sequence + 1);
    STORE(&m->history_sequence, m->history_sequence + 1);
}

/* machine lock held. Order: history, what others go on holding, then memory and work card by card, then the slot; each step can be repeated. */
static void take_out(unsigned slot, bool killed)
{
    struct machine_process *p = &the_machine->processes[slot];
    for (unsigned c = 0; c < the_machine->cards; c++) {
        struct machine_account *a = &p->accounts[c];
        if (a->submitted_ns == 0 && a->bytes == 0 && a->peak_bytes == 0)
            continue;
        card_lock(c);
        if (a->lane < MACHINE_LANES)
            lane_advance(c, a->lane, machine_now());
        card_unlock(c);
    }
    remember(p, killed);
    shares_end_of(slot);
    for (unsigned c = 0; c < the_machine->cards; c++) {
        struct machine_account *a = &p->accounts[c];
        card_lock(c);
        uint64_t bytes = a->bytes;
        unsigned lane = a->lane;
        memset(a, 0, sizeof *a);
        if (lane < MACHINE_LANES) {
            struct machine_lane *l = &card_at(c)->lanes[lane];
            l->used_bytes -= bytes < l->used_bytes ? bytes : l->used_bytes;
        }
        card_unlock(c);
    }
    STORE(&p->state, 0);
}

int process_reap(bool now)
{
    static _Atomic uint64_t last;
    uint64_t t = real_now();
    if (!now && t - atomic_load_explicit(&last, memory_order_relaxed) < 10000000ull)
        return 0;
    atomic_store_explicit(&last, t, memory_order_relaxed);
    int count = 0;
    lock_take(&the_machine->lock);
    for (unsigned slot = 0; slot < the_machine->process_high && slot < MACHINE_PROCESSES; slot++) {
        struct machine_process *p = &the_machine->processes[slot];
        uint32_t state = LOAD(&p->state);
        if (state == 0 || identity_alive(p->pid, p->start_ticks, p->pid_namespace))
            continue;
        take_out(slot, state != 3);
        count++;
    }
    lock_give(&the_machine->lock);
    return count;
}

static void name_self(char *name, size_t size)
{
    int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, name, size - 1);
    if (fd >= 0)
        close(fd);
    name[n > 0 ? n : 0] = 0;
    name[strcspn(name, "\n")] = 0;
}

int process_claim(void)
{
    struct identity self = identity_self();
    process_reap(true);
    int found = -1;
    lock_take(&the_machine->lock);
    for (int slot = 0; slot < MACHINE_PROCESSES && found < 0; slot++)
        if (LOAD(&the_machine->processes[slot].state) == 0)
            found = slot;
    if (found >= 0) {
        struct machine_process *p = &the_machine->processes[found];
        memset(p, 0, sizeof *p);
        p->pid = self.pid;
        p->start_ticks = self.start_ticks;
        p->pid_namespace = self.pid_namespace;
        p->attached_ns = machine_now();
        p->generation = ++the_machine->process_generation;
        for (unsigned c = 0; c < MACHINE_CARDS; c++)
            p->accounts[c].gi_id = p->accounts[c].ci_id = MACHINE_NONE;
        name_self(p->name, sizeof p->name);
        if (the_machine->process_high <= (uint32_t)found)
            STORE(&the_machine->process_high, (uint32_t)found + 1);
        STORE(&p->state, 2);
    }
    lock_give(&the_machine->lock);
    return found;
}

static bool only_thread(void)
{
    DIR *d = opendir("/proc/self/task");
    if (!d)
        return false;
    int count = 0;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        count += e->d_name[0] != '.';
    closedir(d);
    return count == 1;
}

/* Threads that still run may touch the slot: then it is only marked, and the next who looks takes it out. */
void process_leave(int slot)
{
    STORE(&the_machine->processes[slot].state, 3);
    if (!only_thread())
        return;
    lock_take(&the_machine->lock);
    take_out((unsigned)slot, false);
    lock_give(&the_machine->lock);
}
