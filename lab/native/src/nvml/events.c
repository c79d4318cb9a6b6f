/* Event sets: Xid errors of the cards that were registered, from the moment of registration on. */
#define _GNU_SOURCE
#include "nvml.h"

#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SETS 64
#define LOOK_NS 100000000 /* how long a wait sleeps at most before it looks at the machine again */

/* Bits: 1 single-bit ECC, 2 double-bit ECC, 4 performance state, 8 Xid, 0x10 clock, 0x80 power source, 0x100 MIG configuration. */
#define SUPPORTED 0x1full

struct set {
    uint32_t generation; /* odd: in use */
    uint64_t types[MACHINE_CARDS];
    uint64_t seen;       /* sequence of the last event looked at */
    uint32_t lost_told;  /* cards whose loss was reported */
};

static struct { pthread_mutex_t mutex; struct set sets[SETS]; } events = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#define TAG_SET 0x0e5ull

static struct set *set_of(nvmlEventSet_t handle)
{
    uint64_t v = (uint64_t)handle;
    unsigned index = v >> 4 & 0xff;
    if (v >> 52 != TAG_SET || index >= SETS)
        return NULL;
    struct set *s = &events.sets[index];
    return (s->generation & 0xffffff) == (v >> 12 & 0xffffff) && s->generation & 1 ? s : NULL;
}

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    ENTER(nvmlEventSetCreate);
    NEED(out);
    nvmlReturn_t rc = NVML_ERROR_MEMORY;
    pthread_mutex_lock(&events.mutex);
    for (uint64_t i = 0; i < SETS && rc; i++) {
        struct set *s = &events.sets[i];
        if (s->generation & 1)
            continue;
        uint32_t generation = s->generation + 1;
        memset(s, 0, sizeof *s);
        s->generation = generation;
        s->seen = LOAD(&the_machine->xid_sequence);
        *out = (nvmlEventSet_t)(TAG_SET << 52 | (uint64_t)(generation & 0xffffff) << 12 | i << 4);
        rc = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&events.mutex);
    return rc;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t handle)
{
    ENTER(nvmlEventSetFree);
    pthread_mutex_lock(&events.mutex);
    struct set *s = set_of(handle);
    if (s)
        s->generation++;
    pthread_mutex_unlock(&events.mutex);
    return s ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
    WHOLE_CARD(nvmlDeviceGetSupportedEventTypes, device);
    NEED(types);
    *types = c->architecture >= 5 ? SUPPORTED : SUPPORTED & ~3ull;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t handle)
{
    DEVICE(nvmlDeviceRegisterEvents, device);
    if (types & ~(SUPPORTED | 0x1ff))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (t.gi >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&events.mutex);
    struct set *s = set_of(handle);
    if (s)
        s->types[t.card] |= types;
    pthread_mutex_unlock(&events.mutex);
    return s ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* The next event that concerns the set. A ring that went round faster than the set looked loses its oldest events. */
static bool next_event(struct set *s, nvmlEventData_t *out)
{
    uint64_t newest = LOAD(&the_machine->xid_sequence);
    if (newest - s->seen > MACHINE_XIDS && newest > s->seen)
        s->seen = newest - MACHINE_XIDS;
    while (s->seen < newest) {
        const struct machine_xid *x = &the_machine->xids[s->seen % MACHINE_XIDS];
        s->seen++;
        if (LOAD(&x->sequence) != s->seen || x->card >= MACHINE_CARDS || !(s->types[x->card] & x->event_type))
            continue;
        *out = (nvmlEventData_t){nvml_card_handle(x->card), x->event_type, x->xid, x->gi_id, x->ci_id};
        return true;
    }
    return false;
}

/* A registered card that fell off the bus ends the wait, once for each card. */
static bool newly_lost(struct set *s)
{
    for (unsigned card = 0; card < the_machine->cards; card++)
        if (s->types[card] && card_lost(card) && !(s->lost_told >> card & 1)) {
            s->lost_told |= 1u << card;
            return true;
        }
    return false;
}

static nvmlReturn_t look(nvmlEventSet_t handle, nvmlEventData_t *out)
{
    pthread_mutex_lock(&events.mutex);
    struct set *s = set_of(handle);
    nvmlReturn_t rc = !s ? NVML_ERROR_INVALID_ARGUMENT : next_event(s, out) ? NVML_SUCCESS
                                                       : newly_lost(s) ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
    pthread_mutex_unlock(&events.mutex);
    return rc;
}

static void sleep_for(uint32_t seen, uint64_t left)
{
    left = left < LOOK_NS ? left : LOOK_NS;
    struct timespec t = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
    syscall(SYS_futex, &the_machine->xid_futex, FUTEX_WAIT, seen, &t, NULL, 0);
}

/* A thread that takes part in virtual time waits in it. Any other waits in real time: a daemon that does nothing but wait for events
 * must not drive the clock. */
static nvmlReturn_t wait_for(nvmlEventSet_t handle, nvmlEventData_t *out, unsigned timeout_ms)
{
    bool in_machine_time = the_machine->clock.mode == MACHINE_TIME_VIRTUAL && machine_joined();
    uint64_t until = (in_machine_time ? machine_now() : real_now()) + timeout_ms * 1000000ull;
    for (;;) {
        uint32_t seen = LOAD(&the_machine->xid_futex);
        nvmlReturn_t rc = look(handle, out);
        uint64_t now = in_machine_time ? machine_now() : real_now();
        if (rc != NVML_ERROR_TIMEOUT || now >= until)
            return rc;
        if (in_machine_time)
            pumice_machine_wait(&the_machine->xid_futex, seen, until);
        else
            sleep_for(seen, until - now);
    }
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t handle, nvmlEventData_t *data, unsigned int timeout_ms)
{
    ENTER(nvmlEventSetWait_v2);
    NEED(data);
    return wait_for(handle, data, timeout_ms);
}

EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t handle, nvmlEventData_v1_t *data, unsigned int timeout_ms)
{
    ENTER(nvmlEventSetWait);
    NEED(data);
    nvmlEventData_t full;
    nvmlReturn_t rc = wait_for(handle, &full, timeout_ms);
    if (rc == NVML_SUCCESS)
        *data = (nvmlEventData_v1_t){full.device, full.eventType, full.eventData};
    return rc;
}
