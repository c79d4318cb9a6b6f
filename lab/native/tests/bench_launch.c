/* The cost of a call through the machine: ns per launch, median of rounds. Prints one line of JSON. */
#define _GNU_SOURCE
#include "check.h"

#include <time.h>

enum { ROUNDS = 15, LAUNCHES = 200000 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In virtual time nobody waits, so the card stays busy with what was launched; the queue must hold it all. */
static double median_ns(const char *text, int batch)
{
    CUfunction f = kernel(text, "k");
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        double spent = 0;
        for (int n = 0; n < LAUNCHES; n += batch) {
            double start = seconds();
            for (int i = 0; i < batch; i++)
                run(f, NULL);
            spent += seconds() - start;
            cuCtxSynchronize();
        }
        rounds[r] = spent / LAUNCHES * 1e9;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, by_size);
    return rounds[ROUNDS / 2];
}

int main(void)
{
    fresh_machine("virtual=1");
    begin(0);
    double empty = median_ns("pumice-kernel name=k ns=0\n", 500), busy = median_ns("pumice-kernel name=k ns=2000\n", 500);
    struct machine_state *m = pumice_machine_state();
    m->clock.mode = MACHINE_TIME_REAL; /* the same process, real time */
    double real_empty = median_ns("pumice-kernel name=k ns=0\n", 500), real_busy = median_ns("pumice-kernel name=k ns=1000\n", 500);
    printf("{\"launch_empty_ns\": %.1f, \"launch_busy_ns\": %.1f, \"launch_real_empty_ns\": %.1f, \"launch_real_busy_ns\": %.1f}\n", empty, busy,
           real_empty, real_busy);
    drop_machine();
    return 0;
}
