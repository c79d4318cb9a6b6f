#include "core/process.h"

#include "core/quiet.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STAT_BYTES = 1024, FLAGS = 9, THREADS = 20, START_TIME = 22, STACK_BEGINS = 28 };
#define PF_EXITING 4ul

/* The command may hold blanks and parentheses: fields count from the last closing one. */
static const char *field_of(const char *state, int field)
{
    for (int at = 3; at < field && state != NULL; at++)
        state = strchr(state + 1, ' ');
    return state != NULL ? state : "";
}

/*
 * The kernel closes what a process had open, and so frees its GPU memory, before it makes a zombie of it; a first thread that is
 * a zombie while others run is no ended process.
 */
struct process process_look(int pid)
{
    const struct process none = {.stopped = true, .gone = true}, hidden = {.stopped = false};
    char path[64], text[STAT_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int fd = quiet_open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) /* another user's, no table at all, or no descriptor left to read it with */
        return kill(pid, 0) != 0 && errno == ESRCH ? none : hidden;
    ssize_t got = quiet_read(fd, text, sizeof text - 1);
    quiet_close(fd);
    if (got <= 0)
        return none;
    text[got] = '\0';
    const char *end = strrchr(text, ')');
    if (end == NULL || end[1] != ' ')
        return hidden;
    const char *state = end + 2;
    bool zombie = *state == 'Z' || *state == 'X' || *state == 'x';
    struct process found = {.start_time = strtoull(field_of(state, START_TIME), NULL, 10)};
    uint64_t stack = strtoull(field_of(state, STACK_BEGINS), NULL, 10);
    found.program = stack > 1 ? stack : 0; /* the kernel writes 0 or 1 for others' processes */
    found.stopped = zombie || (strtoul(field_of(state, FLAGS), NULL, 10) & PF_EXITING) != 0;
    found.gone = zombie && strtol(field_of(state, THREADS), NULL, 10) <= 1;
    return found;
}

uint64_t process_namespace(void)
{
    struct stat status;
    return path_status("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}
