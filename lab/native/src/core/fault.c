/* Injected faults: a function, the calls it concerns, and what they meet. */
#define _GNU_SOURCE
#include "core.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "cuMemAlloc" names every version of it: cuMemAlloc, cuMemAlloc_v2, cuMemAlloc_v2_ptds. */
static bool concerns(const struct machine_fault *f, const char *function)
{
    size_t n = strnlen(f->function, sizeof f->function);
    if (n == 0 || strncmp(f->function, function, n) != 0)
        return false;
    const char *rest = function + n;
    if (rest[0] == '_' && rest[1] == 'v' && isdigit((unsigned char)rest[2])) {
        rest += 2;
        while (isdigit((unsigned char)*rest))
            rest++;
    }
    return *rest == 0 || strcmp(rest, "_ptsz") == 0 || strcmp(rest, "_ptds") == 0;
}

int fault_hit(const char *function)
{
    int code = 0;
    for (unsigned i = 0; i < MACHINE_FAULTS; i++) {
        struct machine_fault *f = &the_machine->faults[i];
        if (!LOAD(&f->used) || !concerns(f, function))
            continue;
        uint64_t call = ADD(&f->calls, 1) + 1;
        if (call < f->first || (f->count && call - f->first >= f->count))
            continue;
        ADD(&f->hits, 1);
        if (f->crash)
            kill(getpid(), SIGKILL);
        if (f->delay_ns)
            machine_sleep_until(machine_now() + f->delay_ns);
        if (f->code && !code)
            code = f->code;
    }
    return code;
}
