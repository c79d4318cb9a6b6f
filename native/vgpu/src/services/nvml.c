#include "services/nvml.h"

#include "core/after_fork.h"
#include "core/process.h"
#include "core/waits.h"
#include "services/process_state.h"

#include <unistd.h>

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int programs, questions; /* references of the program; questions of ours under way */
static bool up, broken, yields; /* yields: the program has shut it down for the last time */
FORGET_IN_CHILD(counting);
FORGET_IN_CHILD(questions);

bool own_nvml(void)
{
    mutex_take(&counting);
    if (!up && !broken) {
        up = NVML(nvmlInit_v2()) == NVML_SUCCESS;
        broken = !up;
    }
    bool works = up;
    questions += works;
    pthread_mutex_unlock(&counting);
    return works;
}

/* counting held */
static void yield(void)
{
    if (up && yields && programs == 0 && questions == 0) {
        NVML(nvmlShutdown());
        up = false;
    }
}

void own_nvml_done(void)
{
    mutex_take(&counting);
    questions--;
    yield();
    pthread_mutex_unlock(&counting);
}

void own_nvml_program_began(void)
{
    mutex_take(&counting);
    programs++;
    broken = false;
    pthread_mutex_unlock(&counting);
}

/* One shutdown too many would take ours away. */
nvmlReturn own_nvml_program_ends(void)
{
    mutex_take(&counting);
    nvmlReturn rc = up && programs == 0 ? NVML_ERROR_UNINITIALIZED : NVML(nvmlShutdown());
    if (rc == NVML_SUCCESS && programs > 0 && --programs == 0)
        yields = true;
    yield();
    pthread_mutex_unlock(&counting);
    return rc;
}

/* ---- which of the listed processes is this one ---- */

#define NAMESPACE_OF_HOST 4026531836ull /* PROC_PID_INIT_INO of the kernel */

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
    struct region_slot *own = process_slot();
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
    struct region_slot *own = process_slot();
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

/* ---- what the card has less ---- */

static uint64_t free_now(const struct free_delta *delta)
{
    size_t available = 0, total;
    struct nvml_memory memory = {0, 0, 0};
    nvmlDevice handle;
    if (!delta->by_nvml)
        return CUDA(cuMemGetInfo_v2(&available, &total)) == CUDA_SUCCESS ? available : 0;
    if (!own_nvml())
        return 0;
    bool told = process_nvml_handle(delta->device, &handle) && NVML(nvmlDeviceGetMemoryInfo(handle, &memory)) == NVML_SUCCESS;
    own_nvml_done();
    return told ? memory.free : 0;
}

static struct free_delta look(int device, bool by_nvml)
{
    struct free_delta delta = {.device = device, .by_nvml = by_nvml};
    if (device < 0 || memory_limit(&process_state.map, device) == 0)
        return (struct free_delta){.device = -1};
    delta.booked = memory_used(&process_state.map, device);
    delta.free_bytes = free_now(&delta);
    return delta;
}

struct free_delta free_delta_in_context(int device)
{
    return look(device, false);
}

struct free_delta free_delta_by_nvml(int device)
{
    return look(device, true);
}

int64_t free_delta_taken(const struct free_delta *before)
{
    if (before->device < 0 || before->free_bytes == 0)
        return 0;
    uint64_t now = free_now(before), booked = memory_used(&process_state.map, before->device);
    return now == 0 ? 0 : (int64_t)(before->free_bytes - now) - (int64_t)(booked - before->booked);
}

bool free_delta_less(const struct free_delta *before)
{
    return before->device >= 0 && free_now(before) < before->free_bytes;
}
