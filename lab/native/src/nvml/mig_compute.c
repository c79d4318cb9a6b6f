/* MIG: handles of instances, and compute instances. */
#define _GNU_SOURCE
#include "mig.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- handles: tag, generation, card, slots ---- */

#define TAG_GI 0x0d1ull
#define TAG_CI 0x0d2ull

static void *make(uint64_t tag, uint64_t generation, unsigned card, unsigned gi, unsigned ci)
{
    return (void *)(tag << 52 | (generation & 0xffffff) << 28 | (uint64_t)card << 20 | gi << 12 | ci << 4);
}

nvmlGpuInstance_t mig_instance_handle(unsigned card, unsigned gi)
{
    return make(TAG_GI, card_at(card)->instances[gi].generation, card, gi, 0);
}

static nvmlComputeInstance_t compute_handle(unsigned card, unsigned gi, unsigned ci)
{
    return make(TAG_CI, card_at(card)->instances[gi].compute[ci].generation, card, gi, ci);
}

struct machine_gpu_instance *mig_instance(nvmlGpuInstance_t handle, unsigned *card, unsigned *slot, nvmlReturn_t *rc)
{
    uint64_t v = (uint64_t)handle;
    *card = v >> 20 & 0xff, *slot = v >> 12 & 0xff;
    *rc = NVML_ERROR_INVALID_ARGUMENT;
    if (v >> 52 != TAG_GI || *card >= the_machine->cards || *slot >= MACHINE_INSTANCES)
        return NULL;
    struct machine_gpu_instance *i = &card_at(*card)->instances[*slot];
    if (!LOAD(&i->used) || (i->generation & 0xffffff) != (v >> 28 & 0xffffff))
        return NULL;
    *rc = card_lost(*card) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    return *rc ? NULL : i;
}

struct machine_compute_instance *mig_compute(nvmlComputeInstance_t handle, unsigned *card, unsigned *gi, unsigned *ci,
                                             nvmlReturn_t *rc)
{
    uint64_t v = (uint64_t)handle;
    *card = v >> 20 & 0xff, *gi = v >> 12 & 0xff, *ci = v >> 4 & 0xff;
    *rc = NVML_ERROR_INVALID_ARGUMENT;
    if (v >> 52 != TAG_CI || *card >= the_machine->cards || *gi >= MACHINE_INSTANCES || *ci >= MACHINE_INSTANCES)
        return NULL;
    struct machine_gpu_instance *g = &card_at(*card)->instances[*gi];
    struct machine_compute_instance *i = &g->compute[*ci];
    if (!LOAD(&g->used) || !LOAD(&i->used) || (i->generation & 0xffffff) != (v >> 28 & 0xffffff))
        return NULL;
    *rc = card_lost(*card) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
    return *rc ? NULL : i;
}

const struct machine_profile *mig_profile_of(const struct machine_card *c, const struct machine_gpu_instance *gi)
{
    return &c->profiles[gi->profile < MACHINE_PROFILES ? gi->profile : 0];
}

unsigned mig_sm_count(const struct machine_profile *p, unsigned slices)
{
    return p->slices ? p->sm_count * slices / p->slices : p->sm_count;
}

/* ---- compute instance profiles: 1, 2, 3, 4 or 7 slices, where the GPU instance has as many or is filled by them ---- */

static const unsigned slices_of_profile[] = {1, 2, 3, 4, 7, 8, 6, 1, 2}; /* by NVML_COMPUTE_INSTANCE_PROFILE_* */
#define COMPUTE_PROFILES (sizeof slices_of_profile / sizeof *slices_of_profile)

static bool divides(unsigned slices, unsigned whole)
{
    if (slices == whole)
        return true;
    return slices < whole && (slices <= 2 || (slices == 3 && whole >= 7) || (slices == 4 && whole >= 7));
}

static nvmlReturn_t profile_slices(const struct machine_profile *p, unsigned profile, unsigned *slices)
{
    if (profile >= COMPUTE_PROFILES)
        return NVML_ERROR_INVALID_ARGUMENT;
    *slices = slices_of_profile[profile];
    return profile < 7 && divides(*slices, p->slices) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

#define INSTANCE(function, handle) \
    ENTER(function); \
    unsigned card, slot; \
    nvmlReturn_t rc; \
    struct machine_gpu_instance *gi = mig_instance(handle, &card, &slot, &rc); \
    if (!gi) \
        return rc; \
    const struct machine_profile *p = mig_profile_of(card_at(card), gi); \
    (void)p;

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile, unsigned int engine,
                                                                 nvmlComputeInstanceProfileInfo_t *info)
{
    INSTANCE(nvmlGpuInstanceGetComputeInstanceProfileInfo, instance);
    NEED(info && engine == 0);
    unsigned slices;
    rc = profile_slices(p, profile, &slices);
    if (rc == NVML_SUCCESS)
        *info = (nvmlComputeInstanceProfileInfo_t){profile, slices, p->slices / slices, mig_sm_count(p, slices), p->copy_engines,
                                                   p->decoders, p->encoders, p->jpeg, p->ofa};
    return rc;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned int profile,
                                                                  unsigned int engine, nvmlComputeInstanceProfileInfo_v3_t *info)
{
    INSTANCE(nvmlGpuInstanceGetComputeInstanceProfileInfoV, instance);
    NEED(info && engine == 0);
    bool v2 = info->version == NVML_VERSION(nvmlComputeInstanceProfileInfo_v2_t, 2);
    if (!v2 && info->version != NVML_VERSION(nvmlComputeInstanceProfileInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    unsigned slices;
    rc = profile_slices(p, profile, &slices);
    if (rc)
        return rc;
    nvmlComputeInstanceProfileInfo_v2_t head = {info->version, profile, slices, p->slices / slices, mig_sm_count(p, slices),
                                                p->copy_engines, p->decoders, p->encoders, p->jpeg, p->ofa, ""};
    if (slices < p->slices)
        snprintf(head.name, sizeof head.name, "MIG %uc.%s", slices, p->name);
    else
        snprintf(head.name, sizeof head.name, "MIG %s", p->name);
    memcpy(info, &head, sizeof head);
    if (!v2)
        info->capabilities = 0;
    return NVML_SUCCESS;
}

/* ---- room: compute slices in a row, aligned as the hardware's are (a pair begins at an even slice) ---- */

static unsigned taken_mask(const struct machine_gpu_instance *gi)
{
    unsigned mask = 0;
    for (unsigned i = 0; i < MACHINE_INSTANCES; i++)
        if (gi->compute[i].used)
            mask |= ((1u << gi->compute[i].slices) - 1) << gi->compute[i].start;
    return mask;
}

static int place_for(const struct machine_profile *p, unsigned mask, unsigned slices)
{
    for (unsigned start = 0; start + slices <= p->slices; start++) {
        bool aligned = slices == 1 || (slices == 2 && start % 2 == 0) || (slices >= 3 && start % 4 == 0);
        if (aligned && !(mask >> start & ((1u << slices) - 1)))
            return (int)start;
    }
    return -1;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned int profile,
                                                                       unsigned int *count)
{
    INSTANCE(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, instance);
    NEED(count);
    unsigned slices, found = 0;
    rc = profile_slices(p, profile, &slices);
    if (rc)
        return rc;
    card_lock(card);
    unsigned mask = taken_mask(gi);
    for (int at = place_for(p, mask, slices); at >= 0; at = place_for(p, mask, slices), found++)
        mask |= ((1u << slices) - 1) << at;
    card_unlock(card);
    *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned int profile,
                                                                        nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    INSTANCE(nvmlGpuInstanceGetComputeInstancePossiblePlacements, instance);
    NEED(count);
    unsigned slices, found = 0, room = *count;
    rc = profile_slices(p, profile, &slices);
    if (rc)
        return rc;
    unsigned mask = 0;
    for (int at = place_for(p, mask, slices); at >= 0; at = place_for(p, mask, slices), found++) {
        if (placements && found < room)
            placements[found] = (nvmlGpuInstancePlacement_t){(unsigned)at, slices};
        mask |= ((1u << slices) - 1) << at;
    }
    *count = found;
    return placements && found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* ---- create and destroy ---- */

static void uuid_new(char out[48])
{
    unsigned char b[16] = {0};
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, b, sizeof b) != (ssize_t)sizeof b)
            b[0] ^= 1;
        close(fd);
    }
    snprintf(out, 48, "MIG-%02x%02x%02x%02x-%02x%02x-5%x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4], b[5],
             b[6] & 0xf, b[7], (b[8] & 0x3f) | 0x80, b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* Named after card, place and generation: the same history gives the same names, which a test in virtual time wants. */
static void uuid_derived(unsigned card, const struct machine_gpu_instance *gi, uint64_t generation, char out[48])
{
    uint64_t h = 1469598103934665603ull, k = 0x9e3779b97f4a7c15ull;
    for (const char *at = card_at(card)->uuid; *at; at++)
        h = (h ^ (unsigned char)*at) * 1099511628211ull;
    h = (h ^ (gi->id + 31 * generation)) * k;
    uint64_t l = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
    h ^= h >> 32;
    l ^= l >> 31;
    snprintf(out, 48, "MIG-%08x-%04x-5%03x-8%03x-%04x%08x", (unsigned)(h >> 32), (unsigned)(h >> 16) & 0xffff, (unsigned)h & 0xfff,
             (unsigned)(l >> 52), (unsigned)(l >> 32) & 0xffff, (unsigned)l);
}

/* card lock held */
static nvmlReturn_t create_in(unsigned card, unsigned slot, unsigned profile, unsigned slices, int start, nvmlComputeInstance_t *out)
{
    struct machine_card *c = card_at(card);
    struct machine_gpu_instance *gi = &c->instances[slot];
    unsigned ids = 0;
    struct machine_compute_instance *free_one = NULL;
    unsigned at = 0;
    for (unsigned i = 0; i < MACHINE_INSTANCES; i++) {
        if (gi->compute[i].used)
            ids |= 1u << gi->compute[i].id;
        else if (!free_one)
            free_one = &gi->compute[i], at = i;
    }
    if (!free_one || start < 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    memset(free_one, 0, sizeof *free_one);
    while (ids >> free_one->id & 1)
        free_one->id++;
    free_one->profile = profile;
    free_one->slices = slices;
    free_one->start = (unsigned)start;
    free_one->generation = ++c->generation;
    if (the_machine->clock.mode == MACHINE_TIME_VIRTUAL)
        uuid_derived(card, gi, free_one->generation, free_one->uuid);
    else
        uuid_new(free_one->uuid);
    STORE(&free_one->used, 1);
    *out = compute_handle(card, slot, at);
    return NVML_SUCCESS;
}

static nvmlReturn_t create(unsigned card, unsigned slot, struct machine_gpu_instance *gi, unsigned profile,
                           const nvmlGpuInstancePlacement_t *wanted, nvmlComputeInstance_t *out)
{
    const struct machine_profile *p = mig_profile_of(card_at(card), gi);
    unsigned slices;
    nvmlReturn_t rc = profile_slices(p, profile, &slices);
    if (rc == NVML_SUCCESS)
        rc = nvml_may_change();
    if (rc)
        return rc;
    card_lock(card);
    unsigned mask = taken_mask(gi);
    int start = place_for(p, mask, slices);
    if (wanted)
        start = wanted->size == slices && wanted->start + slices <= p->slices && !(mask >> wanted->start & ((1u << slices) - 1))
                    ? (int)wanted->start : -1;
    rc = gi->used ? create_in(card, slot, profile, slices, start, out) : NVML_ERROR_INVALID_ARGUMENT;
    card_unlock(card);
    return rc;
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned int profile, nvmlComputeInstance_t *out)
{
    INSTANCE(nvmlGpuInstanceCreateComputeInstance, instance);
    NEED(out);
    return create(card, slot, gi, profile, NULL, out);
}

EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned int profile,
                                                                      const nvmlGpuInstancePlacement_t *placement,
                                                                      nvmlComputeInstance_t *out)
{
    INSTANCE(nvmlGpuInstanceCreateComputeInstanceWithPlacement, instance);
    NEED(out && placement);
    NEED(placement->start < MACHINE_INSTANCES);
    return create(card, slot, gi, profile, placement, out);
}

EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance)
{
    ENTER(nvmlComputeInstanceDestroy);
    unsigned card, gi, ci;
    nvmlReturn_t rc;
    struct machine_compute_instance *i = mig_compute(instance, &card, &gi, &ci, &rc);
    if (!i)
        return rc;
    rc = nvml_may_change();
    if (rc)
        return rc;
    bool busy = nvml_card_busy(card, (int)gi, (int)ci);
    card_lock(card);
    rc = !i->used ? NVML_ERROR_INVALID_ARGUMENT : busy ? NVML_ERROR_IN_USE : NVML_SUCCESS;
    if (rc == NVML_SUCCESS)
        STORE(&i->used, 0);
    card_unlock(card);
    return rc;
}

/* ---- look up ---- */

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned int profile, nvmlComputeInstance_t *out,
                                                       unsigned int *count)
{
    INSTANCE(nvmlGpuInstanceGetComputeInstances, instance);
    NEED(out && count && profile < COMPUTE_PROFILES);
    unsigned found = 0;
    card_lock(card);
    for (unsigned i = 0; i < MACHINE_INSTANCES; i++)
        if (gi->compute[i].used && gi->compute[i].profile == profile)
            out[found++] = compute_handle(card, slot, i);
    card_unlock(card);
    *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *out)
{
    INSTANCE(nvmlGpuInstanceGetComputeInstanceById, instance);
    NEED(out);
    for (unsigned i = 0; i < MACHINE_INSTANCES; i++)
        if (LOAD(&gi->compute[i].used) && gi->compute[i].id == id) {
            *out = compute_handle(card, slot, i);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    ENTER(nvmlComputeInstanceGetInfo_v2);
    unsigned card, gi, ci;
    nvmlReturn_t rc;
    const struct machine_compute_instance *i = mig_compute(instance, &card, &gi, &ci, &rc);
    if (!i)
        return rc;
    NEED(info);
    *info = (nvmlComputeInstanceInfo_t){nvml_card_handle(card), mig_instance_handle(card, gi), i->id, i->profile, {i->start, i->slices}};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    return nvmlComputeInstanceGetInfo_v2(instance, info);
}
