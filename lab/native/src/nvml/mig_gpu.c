/* MIG: where GPU instances may lie, and making and destroying them.
 *
 * A card is a row of memory slices. A profile may begin at certain slices only, and an instance takes its slices as a whole: there is
 * room if one of the profile's placements touches no instance that exists. The profiles are the model's; here is only the rule. */
#include "mig.h"

#include <string.h>

/* ---- placements ---- */

static bool slices_free(const struct machine_card *c, struct machine_placement at)
{
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++) {
        const struct machine_gpu_instance *i = &c->instances[g];
        if (i->used && at.start < i->start + i->size && i->start < at.start + at.size)
            return false;
    }
    return true;
}

static unsigned instances_of(const struct machine_card *c, unsigned profile)
{
    unsigned count = 0;
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        count += c->instances[g].used && c->instances[g].profile == profile;
    return count;
}

static unsigned compute_slices_used(const struct machine_card *c)
{
    unsigned sum = 0;
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        sum += c->instances[g].used ? mig_profile_of(c, &c->instances[g])->slices : 0;
    return sum;
}

/* A card has one set of media extensions (JPEG and OFA engines), whichever profile holds it: 1g.6gb+me and 2g.12gb+me exclude each other. */
static bool media_free(const struct machine_card *c, const struct machine_profile *p)
{
    for (unsigned g = 0; p->ofa && g < MACHINE_INSTANCES; g++)
        if (c->instances[g].used && mig_profile_of(c, &c->instances[g])->ofa)
            return false;
    return true;
}

/* Beside free memory slices an instance needs its compute slices, and some profiles exist only so many times (+me). */
static bool room_for(const struct machine_card *c, unsigned profile, struct machine_placement at)
{
    const struct machine_profile *p = &c->profiles[profile];
    unsigned limit = c->mig_compute_slices ? c->mig_compute_slices : 7;
    return slices_free(c, at) && media_free(c, p) && instances_of(c, profile) < p->max_count && compute_slices_used(c) + p->slices <= limit;
}

static unsigned free_placements(const struct machine_card *c, unsigned profile)
{
    unsigned count = 0;
    for (unsigned i = 0; i < c->profiles[profile].placement_count && i < MACHINE_PLACEMENTS; i++)
        count += room_for(c, profile, c->profiles[profile].placements[i]);
    return count;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                                  nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    MIG_CARD(nvmlDeviceGetGpuInstancePossiblePlacements_v2, device);
    NEED(count);
    int p = mig_profile_by_id(c, id);
    NEED(p >= 0);
    unsigned total = c->profiles[p].placement_count;
    total = total < MACHINE_PLACEMENTS ? total : MACHINE_PLACEMENTS;
    if (placements && *count < total)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; placements && i < total; i++)
        placements[i] = (nvmlGpuInstancePlacement_t){c->profiles[p].placements[i].start, c->profiles[p].placements[i].size};
    *count = total;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id,
                                                               nvmlGpuInstancePlacement_t *placements, unsigned int *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

/* Enter an instance on a copy of a card, which is small enough to try on; false when the card has no number left for it. */
static bool tried(struct machine_card *trial, unsigned profile, struct machine_placement at)
{
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++) {
        if (trial->instances[g].used)
            continue;
        trial->instances[g] = (struct machine_gpu_instance){.used = 1, .profile = profile, .start = at.start, .size = at.size};
        return true;
    }
    return false;
}

static unsigned remaining(const struct machine_card *c, unsigned profile)
{
    struct machine_card trial = *c;
    unsigned count = 0;
    for (unsigned i = 0; i < trial.profiles[profile].placement_count && i < MACHINE_PLACEMENTS; i++) {
        struct machine_placement at = trial.profiles[profile].placements[i];
        count += room_for(&trial, profile, at) && tried(&trial, profile, at);
    }
    return count;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count)
{
    MIG_CARD(nvmlDeviceGetGpuInstanceRemainingCapacity, device);
    NEED(count);
    int p = mig_profile_by_id(c, id);
    NEED(p >= 0);
    card_lock(t.card);
    *count = remaining(c, (unsigned)p);
    card_unlock(t.card);
    return NVML_SUCCESS;
}

/* ---- create ---- */

/* Ids are places in the tree of halves: the whole card 0, its halves 1 and 2, quarters 3 to 6, slices 7 to 14. */
static unsigned instance_id(const struct machine_card *c, unsigned start, unsigned size)
{
    unsigned whole = 1, part = 1;
    while (whole < (c->mig_slices ? c->mig_slices : 8))
        whole *= 2;
    while (part < size)
        part *= 2;
    return whole / part - 1 + start / part;
}

/* Of the free placements the one that leaves most room for everything else, so that small instances do not spoil large ones. */
static int best_placement(const struct machine_card *c, unsigned profile)
{
    int best = -1;
    unsigned best_left = 0;
    for (unsigned i = 0; i < c->profiles[profile].placement_count && i < MACHINE_PLACEMENTS; i++) {
        struct machine_placement at = c->profiles[profile].placements[i];
        if (!room_for(c, profile, at))
            continue;
        struct machine_card trial = *c;
        tried(&trial, profile, at);
        unsigned left = 0;
        for (unsigned p = 0; p < c->profile_count; p++)
            left += free_placements(&trial, p) * c->profiles[p].slices;
        if (best < 0 || left > best_left) {
            best = (int)i;
            best_left = left;
        }
    }
    return best;
}

/* card lock held */
static nvmlReturn_t create_at(unsigned card, unsigned profile, struct machine_placement at, nvmlGpuInstance_t *out)
{
    struct machine_card *c = card_at(card);
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++) {
        struct machine_gpu_instance *i = &c->instances[g];
        if (i->used)
            continue;
        memset(i, 0, sizeof *i);
        i->id = instance_id(c, at.start, at.size);
        i->profile = profile;
        i->start = at.start;
        i->size = at.size;
        i->generation = ++c->generation;
        memset(&c->lanes[g + 1], 0, sizeof c->lanes[g + 1]);
        STORE(&i->used, 1);
        *out = mig_instance_handle(card, g);
        return NVML_SUCCESS;
    }
    return NVML_ERROR_INSUFFICIENT_RESOURCES;
}

static nvmlReturn_t create(struct target t, unsigned id, const nvmlGpuInstancePlacement_t *wanted, nvmlGpuInstance_t *out)
{
    struct machine_card *c = card_at(t.card);
    int p = mig_profile_by_id(c, id);
    NEED(out && p >= 0);
    nvmlReturn_t rc = nvml_may_change();
    if (rc)
        return rc;
    card_lock(t.card);
    int chosen = -1;
    if (!wanted)
        chosen = best_placement(c, (unsigned)p);
    rc = NVML_ERROR_INSUFFICIENT_RESOURCES;
    if (wanted) {
        rc = NVML_ERROR_INVALID_ARGUMENT; /* not a placement of this profile */
        for (unsigned i = 0; i < c->profiles[p].placement_count && i < MACHINE_PLACEMENTS; i++) {
            struct machine_placement at = c->profiles[p].placements[i];
            if (at.start != wanted->start || at.size != wanted->size)
                continue;
            chosen = room_for(c, (unsigned)p, at) ? (int)i : -1;
            rc = NVML_ERROR_INSUFFICIENT_RESOURCES;
        }
    }
    if (chosen >= 0)
        rc = create_at(t.card, (unsigned)p, c->profiles[p].placements[chosen], out);
    card_unlock(t.card);
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out)
{
    MIG_CARD(nvmlDeviceCreateGpuInstance, device);
    return create(t, id, NULL, out);
}

EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int id,
                                                             const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *out)
{
    MIG_CARD(nvmlDeviceCreateGpuInstanceWithPlacement, device);
    NEED(placement);
    return create(t, id, placement, out);
}

/* ---- destroy and look up ---- */

EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance)
{
    ENTER(nvmlGpuInstanceDestroy);
    unsigned card, slot;
    nvmlReturn_t rc;
    struct machine_gpu_instance *i = mig_instance(instance, &card, &slot, &rc);
    if (!i)
        return rc;
    rc = nvml_may_change();
    if (rc)
        return rc;
    bool busy = nvml_card_busy(card, (int)slot, -1);
    card_lock(card);
    for (unsigned ci = 0; ci < MACHINE_INSTANCES; ci++)
        busy |= i->compute[ci].used != 0;
    if (!i->used)
        rc = NVML_ERROR_INVALID_ARGUMENT; /* somebody was faster */
    else if (busy)
        rc = NVML_ERROR_IN_USE;
    else
        STORE(&i->used, 0);
    card_unlock(card);
    return rc;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out, unsigned int *count)
{
    MIG_CARD(nvmlDeviceGetGpuInstances, device);
    NEED(out && count);
    int p = mig_profile_by_id(c, id);
    NEED(p >= 0);
    unsigned found = 0;
    card_lock(t.card);
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        if (c->instances[g].used && c->instances[g].profile == (unsigned)p)
            out[found++] = mig_instance_handle(t.card, g);
    card_unlock(t.card);
    *count = found;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out)
{
    MIG_CARD(nvmlDeviceGetGpuInstanceById, device);
    NEED(out);
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        if (LOAD(&c->instances[g].used) && c->instances[g].id == id) {
            *out = mig_instance_handle(t.card, g);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    ENTER(nvmlGpuInstanceGetInfo);
    unsigned card, slot;
    nvmlReturn_t rc;
    const struct machine_gpu_instance *i = mig_instance(instance, &card, &slot, &rc);
    if (!i)
        return rc;
    NEED(info);
    *info = (nvmlGpuInstanceInfo_t){nvml_card_handle(card), i->id, mig_profile_of(card_at(card), i)->id, {i->start, i->size}};
    return NVML_SUCCESS;
}
