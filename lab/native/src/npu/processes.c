/* The processes that use a chip: rows of processes, known by pid and start time. */
#define _GNU_SOURCE
#include "npu_core.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Field 22 of /proc/PID/stat, behind a name that may hold anything; 0 where there is no such process. */
static uint64_t started(uint32_t pid)
{
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    const char *rest = strrchr(text, ')');
    char state = 0;
    unsigned long long ticks = 0;
    if (!rest || sscanf(rest, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state, &ticks) != 2)
        return 0;
    return state == 'Z' ? 0 : ticks;
}

void npu_reap(struct npu_chip *chip)
{
    for (unsigned i = 0; i < NPU_PROCESSES; i++) {
        struct npu_process *p = &chip->processes[i];
        if (p->pid && started(p->pid) != p->start_ticks)
            memset(p, 0, sizeof *p);
    }
}

uint64_t npu_held(const struct npu_chip *chip, uint32_t slice, unsigned *count)
{
    uint64_t sum = 0;
    unsigned rows = 0;
    for (unsigned i = 0; i < NPU_PROCESSES; i++) {
        const struct npu_process *p = &chip->processes[i];
        if (p->pid && p->slice == slice) {
            sum += p->bytes;
            rows++;
        }
    }
    if (count)
        *count = rows;
    return sum;
}

struct npu_process *npu_own_row(struct npu_chip *chip, uint32_t slice)
{
    uint32_t pid = (uint32_t)getpid();
    struct npu_process *free_row = NULL;
    for (unsigned i = 0; i < NPU_PROCESSES; i++) {
        struct npu_process *p = &chip->processes[i];
        if (p->pid == pid && p->slice == slice)
            return p;
        if (!p->pid && !free_row)
            free_row = p;
    }
    if (free_row)
        *free_row = (struct npu_process){.pid = pid, .slice = slice, .start_ticks = started(pid)};
    return free_row;
}
