#include "services/listed.h"

#include "core/process.h"
#include "services/process_state.h"
#include "services/own_nvml.h"

#include <unistd.h>

#define NAMESPACE_OF_HOST 4026531836ull /* PROC_PID_INIT_INO of the kernel */

static struct region_slot *own_slot(void)
{
    return region_has_books(&process_state.map) ? region_own(&process_state.map) : NULL;
}

static nvmlReturn ask(int device, unsigned *count, struct nvml_process *list)
{
    nvmlDevice handle;
    nvmlReturn rc = NVML_ERROR_FUNCTION_NOT_FOUND;
    if (!process_nvml_handle(device, &handle))
        return rc;
    rc = NVML(nvmlDeviceGetComputeRunningProcesses_v3(handle, count, list));
    if (rc == NVML_ERROR_FUNCTION_NOT_FOUND)
        rc = NVML(nvmlDeviceGetComputeRunningProcesses_v2(handle, count, list));
    return rc;
}

void listed_look(int device, struct listing *listing)
{
    struct nvml_process list[LISTED];
    unsigned count = LISTED;
    listing->count = -1;
    if (!own_nvml())
        return;
    nvmlReturn rc = ask(device, &count, list);
    own_nvml_done();
    if (rc != NVML_SUCCESS)
        return;
    listing->count = (int)count;
    for (unsigned i = 0; i < count; i++) {
        listing->pids[i] = list[i].pid;
        listing->bytes[i] = list[i].bytes;
    }
}

static int times(const struct listing *listing, unsigned pid)
{
    int found = 0;
    for (int i = 0; i < listing->count; i++)
        found += listing->pids[i] == pid;
    return found;
}

/* Of several that came at the same moment only the number that this process has itself is believed. */
void listed_learn(int device, const struct listing *before)
{
    struct region_slot *own = own_slot();
    struct listing after;
    unsigned here = (unsigned)getpid(), newcomer = 0;
    int newcomers = 0;
    if (own == NULL || before->count < 0 || shared_get(&own->hostpid) != 0)
        return;
    listed_look(device, &after);
    for (int i = 0; i < after.count; i++)
        if (times(before, after.pids[i]) == 0) {
            newcomer = after.pids[i];
            newcomers++;
        }
    if (times(before, here) == 0 && times(&after, here) == 1)
        shared_set(&own->hostpid, (int32_t)here);
    else if (newcomers == 1 && times(&after, here) == 0)
        shared_set(&own->hostpid, (int32_t)newcomer);
}

/* The monitor may have written it into the slot, where anybody may: the first that can be so is believed. */
static void believe_the_slot(struct region_slot *own, const struct listing *now)
{
    int32_t told = shared_get(&process_state.map.region->procs[process_state.map.slot].hostpid);
    if (told > 0 && times(now, (unsigned)told) == 1)
        shared_set(&own->hostpid, told);
}

uint64_t listed_bytes(int device)
{
    struct region_slot *own = own_slot();
    struct listing now;
    bool of_host = process_namespace() == NAMESPACE_OF_HOST;
    listed_look(device, &now);
    if (own != NULL && !of_host && shared_get(&own->hostpid) == 0)
        believe_the_slot(own, &now);
    unsigned pid = own != NULL ? (unsigned)shared_get(&own->hostpid) : 0;
    if (pid == 0 && of_host)
        pid = (unsigned)getpid();
    if (pid == 0 || times(&now, pid) != 1) /* two of a number: nobody says which is this one */
        return 0;
    for (int i = 0; i < now.count; i++)
        if (now.pids[i] == pid)
            return now.bytes[i] == UINT64_MAX ? 0 : now.bytes[i];
    return 0;
}
