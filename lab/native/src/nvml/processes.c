/* The processes that compute on a card, and their use of it. */
#define _GNU_SOURCE
#include "nvml.h"

#include <string.h>

#define WINDOW_NS 1000000000ull /* the driver's sampling period */

uint64_t nvml_busy_percent(const uint64_t *buckets, uint64_t epoch, uint64_t now)
{
    uint64_t busy = busy_window(buckets, epoch, now, WINDOW_NS);
    uint64_t window = WINDOW_NS - MACHINE_BUCKET_NS + now % MACHINE_BUCKET_NS; /* the newest bucket is not full yet */
    uint64_t percent = (100 * busy + window / 2) / window;
    return percent > 100 ? 100 : percent;
}

/* machine time of the card's lanes brought up to now */
static uint64_t bring_up(unsigned card)
{
    card_lock(card);
    uint64_t now = machine_now();
    for (unsigned lane = 0; lane < MACHINE_LANES; lane++)
        if (lane == 0 || card_at(card)->instances[lane - 1].used)
            lane_advance(card, lane, now);
    card_unlock(card);
    return now;
}

/* As the driver modules show processes: all by host pid (proprietary), those of the caller's pid namespace (open), none. */
static bool shown(const struct machine_process *p)
{
    uint32_t mode = RELAXED(&the_machine->pid_mode);
    return mode == 0 || (mode == 1 && p->pid_namespace == identity_self().pid_namespace);
}

static bool on_target(const struct machine_account *a, struct target t)
{
    if (a->contexts == 0)
        return false;
    if (t.gi < 0)
        return true;
    const struct machine_gpu_instance *g = &card_at(t.card)->instances[t.gi];
    return a->gi_id == g->id && a->ci_id == g->compute[t.ci].id;
}

bool nvml_card_busy(unsigned card, int gi, int ci)
{
    process_reap(true);
    const struct machine_card *c = card_at(card);
    for (unsigned slot = 0; slot < the_machine->process_high; slot++) {
        const struct machine_account *a = account_at(card, (int)slot);
        if (LOAD(&the_machine->processes[slot].state) == 0 || RELAXED(&a->contexts) == 0)
            continue;
        if (gi < 0 || (a->lane == (unsigned)gi + 1 && (ci < 0 || a->ci_id == c->instances[gi].compute[ci].id)))
            return true;
    }
    return false;
}

/* Calls `put` for each process of the target; the count is what there is, `room` what fits. */
static nvmlReturn_t list(struct target t, unsigned *count, void *infos, void (*put)(void *, unsigned, const nvmlProcessInfo_t *))
{
    if (!count || (*count > 0 && !infos))
        return NVML_ERROR_INVALID_ARGUMENT;
    process_reap(true);
    unsigned room = *count, found = 0;
    for (unsigned slot = 0; slot < the_machine->process_high; slot++) {
        const struct machine_process *p = &the_machine->processes[slot];
        const struct machine_account *a = &p->accounts[t.card];
        if (!process_live(p) || !on_target(a, t) || !shown(p))
            continue;
        nvmlProcessInfo_t info = {p->pid, RELAXED(&a->bytes), a->gi_id, a->ci_id};
        if (found < room)
            put(infos, found, &info);
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static void put_v1(void *infos, unsigned i, const nvmlProcessInfo_t *info)
{
    ((nvmlProcessInfo_v1_t *)infos)[i] = (nvmlProcessInfo_v1_t){info->pid, info->usedGpuMemory};
}

static void put_v3(void *infos, unsigned i, const nvmlProcessInfo_t *info)
{
    ((nvmlProcessInfo_t *)infos)[i] = *info;
}

#define COMPUTE(name, type, put) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, type *infos) \
    { \
        DEVICE(name, device); \
        return list(t, count, infos, put); \
    }
COMPUTE(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, put_v1)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, put_v3)
COMPUTE(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, put_v3)

/* No graphics and no MPS here: lists that are always empty. */
#define NOBODY(name) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *count, void *infos) \
    { \
        DEVICE(name, device); \
        (void)infos; \
        NEED(count); \
        *count = 0; \
        return NVML_SUCCESS; \
    }
NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)

/* {version, mode, numProcArrayEntries, *procArray of {pid, usedGpuMemory, gi, ci, protected}} */
struct detail { unsigned pid; unsigned long long used; unsigned gi, ci; unsigned long long cc_protected; };
struct details { unsigned version, mode, count; struct detail *entries; };

static void put_detail(void *infos, unsigned i, const nvmlProcessInfo_t *info)
{
    ((struct detail *)infos)[i] = (struct detail){info->pid, info->usedGpuMemory, info->gpuInstanceId, info->computeInstanceId, 0};
}

EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct details *details)
{
    DEVICE(nvmlDeviceGetRunningProcessDetailList, device);
    NEED(details && details->mode < 3);
    if (details->version >> 24 != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (details->mode != 0)
        details->count = 0;
    return details->mode != 0 ? NVML_SUCCESS : list(t, &details->count, details->entries, put_detail);
}

/* ---- utilisation ---- */

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    WHOLE_CARD(nvmlDeviceGetUtilizationRates, device);
    NEED(rates);
    if (c->mig_mode)
        return NVML_ERROR_NOT_SUPPORTED; /* as on hardware: no such figure while the card is cut up */
    process_reap(false);
    uint64_t now = bring_up(t.card);
    const struct machine_lane *l = &c->lanes[0];
    uint64_t percent = nvml_busy_percent(l->bucket_busy_ns, l->bucket_epoch, now);
    *rates = (nvmlUtilization_t){(unsigned)percent, (unsigned)(percent / 2)};
    return NVML_SUCCESS;
}

#define IDLE_ENGINE(name) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *utilization, unsigned int *period) \
    { \
        WHOLE_CARD(name, device); \
        NEED(utilization && period); \
        *utilization = 0; \
        *period = 167000; \
        return NVML_SUCCESS; \
    }
IDLE_ENGINE(nvmlDeviceGetEncoderUtilization)
IDLE_ENGINE(nvmlDeviceGetDecoderUtilization)
IDLE_ENGINE(nvmlDeviceGetJpgUtilization)
IDLE_ENGINE(nvmlDeviceGetOfaUtilization)

/* A sample for each process that was busy since; time stamps are microseconds. */
static nvmlReturn_t samples(struct target t, unsigned *count, uint64_t since_us, void *out,
                            void (*put)(void *, unsigned, unsigned pid, uint64_t us, unsigned sm))
{
    process_reap(true);
    uint64_t now = bring_up(t.card);
    unsigned room = out ? *count : 0, found = 0;
    for (unsigned slot = 0; slot < the_machine->process_high; slot++) {
        const struct machine_process *p = &the_machine->processes[slot];
        const struct machine_account *a = &p->accounts[t.card];
        if (!process_live(p) || !on_target(a, t) || !shown(p) || now / 1000 <= since_us)
            continue;
        uint64_t percent = nvml_busy_percent(a->bucket_busy_ns, a->bucket_epoch, now);
        if (percent == 0)
            continue;
        if (found < room)
            put(out, found, p->pid, now / 1000, (unsigned)percent);
        found++;
    }
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static void put_sample(void *out, unsigned i, unsigned pid, uint64_t us, unsigned sm)
{
    ((nvmlProcessUtilizationSample_t *)out)[i] = (nvmlProcessUtilizationSample_t){pid, us, sm, sm / 2, 0, 0};
}

static void put_info(void *out, unsigned i, unsigned pid, uint64_t us, unsigned sm)
{
    ((nvmlProcessUtilizationInfo_v1_t *)out)[i] = (nvmlProcessUtilizationInfo_v1_t){us, pid, sm, sm / 2, 0, 0, 0, 0};
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *count,
                                                    unsigned long long since)
{
    WHOLE_CARD(nvmlDeviceGetProcessUtilization, device);
    NEED(count);
    if (c->mig_mode)
        return NVML_ERROR_NOT_SUPPORTED;
    return samples(t, count, since, out, put_sample);
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
    WHOLE_CARD(nvmlDeviceGetProcessesUtilizationInfo, device);
    NEED(info);
    if (info->version != NVML_VERSION(nvmlProcessesUtilizationInfo_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (c->mig_mode)
        return NVML_ERROR_NOT_SUPPORTED;
    return samples(t, &info->processSamplesCount, info->lastSeenTimeStamp, info->procUtilArray, put_info);
}

/* Types: 0 power, 1 GPU utilisation, 2 memory, 3 encoder, 4 decoder, 5 SM clock, 6 memory clock. One sample a window. */
EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, unsigned long long since, unsigned int *value_type,
                                         unsigned int *count, nvmlSample_t *out)
{
    WHOLE_CARD(nvmlDeviceGetSamples, device);
    NEED(value_type && count && type < 12);
    if (c->mig_mode)
        return NVML_ERROR_NOT_SUPPORTED;
    uint64_t now = bring_up(t.card);
    *value_type = 1;
    if (!out) {
        *count = MACHINE_BUCKETS - 1;
        return NVML_SUCCESS;
    }
    unsigned room = *count, found = 0;
    const struct machine_lane *l = &c->lanes[0];
    uint64_t newest = now / MACHINE_BUCKET_NS;
    for (uint64_t n = newest >= MACHINE_BUCKETS - 1 ? newest - (MACHINE_BUCKETS - 1) : 0; n < newest && found < room; n++) {
        uint64_t end_us = (n + 1) * MACHINE_BUCKET_NS / 1000;
        if (end_us <= since)
            continue;
        bool kept = n <= l->bucket_epoch && l->bucket_epoch - n < MACHINE_BUCKETS;
        uint64_t percent = kept ? 100 * l->bucket_busy_ns[n % MACHINE_BUCKETS] / MACHINE_BUCKET_NS : 0;
        memset(&out[found], 0, sizeof out[found]);
        out[found].timeStamp = end_us;
        out[found].sampleValue.uiVal = type == 1 ? (unsigned)percent : type == 2 ? (unsigned)percent / 2 : 0;
        found++;
    }
    *count = found;
    return found ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* ---- accounting: kept always, for the processes that still live and those that lately ended ---- */

struct stats { unsigned gpu, memory; unsigned long long max_bytes, time_ms, start_us; unsigned running, reserved[5]; };

EXPORT nvmlReturn_t nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode)
{
    WHOLE_CARD(nvmlDeviceGetAccountingMode, device);
    NEED(mode);
    *mode = 1;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned int *size)
{
    WHOLE_CARD(nvmlDeviceGetAccountingBufferSize, device);
    NEED(size);
    *size = MACHINE_HISTORY;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, struct stats *out)
{
    WHOLE_CARD(nvmlDeviceGetAccountingStats, device);
    NEED(out);
    uint64_t now = bring_up(t.card);
    memset(out, 0, sizeof *out);
    for (unsigned slot = 0; slot < the_machine->process_high; slot++) {
        const struct machine_process *p = &the_machine->processes[slot];
        if (!process_live(p) || p->pid != pid)
            continue;
        const struct machine_account *a = &p->accounts[t.card];
        uint64_t life = now > p->attached_ns ? now - p->attached_ns : 1;
        out->gpu = (unsigned)(100 * a->served_ns / life);
        out->max_bytes = a->peak_bytes;
        out->start_us = p->attached_ns / 1000;
        out->running = 1;
        return NVML_SUCCESS;
    }
    for (unsigned i = 0; i < MACHINE_HISTORY; i++) {
        const struct machine_past *past = &the_machine->history[i];
        if (past->sequence && past->pid == pid && past->cards[t.card].peak_bytes) {
            out->max_bytes = past->cards[t.card].peak_bytes;
            out->time_ms = past->cards[t.card].busy_ns / 1000000;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    WHOLE_CARD(nvmlDeviceGetAccountingPids, device);
    NEED(count && (*count == 0 || pids));
    unsigned room = *count, found = 0;
    for (unsigned i = 0; i < MACHINE_HISTORY; i++) {
        const struct machine_past *past = &the_machine->history[i];
        if (!past->sequence || !past->cards[t.card].peak_bytes)
            continue;
        if (found < room)
            pids[found] = past->pid;
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
