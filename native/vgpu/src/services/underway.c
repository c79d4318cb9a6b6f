#include "services/underway.h"

#include "vgpu/region.h"

#include <string.h>

static int all[REGION_DEVICES];
static __thread int own[REGION_DEVICES] __attribute__((tls_model("initial-exec")));

static void add(int device, int by)
{
    if (device < 0)
        return;
    own[device] += by;
    shared_add(&all[device], by);
}

void underway_begin(int device)
{
    add(device, 1);
}

void underway_end(int device)
{
    add(device, -1);
}

bool underway_nobody_else(int device)
{
    return shared_get(&all[device]) == own[device];
}

/* The parent's other threads are not the child's. */
void underway_after_fork(void)
{
    memset(all, 0, sizeof all);
    memset(own, 0, sizeof own);
}
