/* MIG: the mode of a card, and the profiles that its model offers. */
#define _GNU_SOURCE
#include "mig.h"

#include <stdio.h>

/* ---- mode ---- */

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    WHOLE_CARD(nvmlDeviceGetMigMode, device);
    NEED(current && pending);
    if (!c->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *current = LOAD(&c->mig_mode);
    *pending = LOAD(&c->mig_pending);
    return NVML_SUCCESS;
}

static bool has_instances(const struct machine_card *c)
{
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        if (LOAD(&c->instances[g].used))
            return true;
    return false;
}

/* The mode is pending while the card is in use, or until a reset where the card needs one. */
EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode, nvmlReturn_t *status)
{
    WHOLE_CARD(nvmlDeviceSetMigMode, device);
    NEED(status && mode <= 1);
    if (!c->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    nvmlReturn_t allowed = nvml_may_change();
    if (allowed)
        return allowed;
    bool busy = nvml_card_busy(t.card, -1, -1);
    card_lock(t.card);
    STORE(&c->mig_pending, mode);
    if (mode == c->mig_mode)
        *status = NVML_SUCCESS;
    else if (busy || (mode == 0 && has_instances(c)))
        *status = NVML_ERROR_IN_USE;
    else if (c->mig_needs_reset)
        *status = NVML_ERROR_RESET_REQUIRED;
    else {
        STORE(&c->mig_mode, mode);
        *status = NVML_SUCCESS;
    }
    card_unlock(t.card);
    return NVML_SUCCESS;
}

/* ---- profiles ---- */

static int profile_by_number(const struct machine_card *c, unsigned number)
{
    for (unsigned p = 0; p < c->profile_count && p < MACHINE_PROFILES; p++)
        if (c->profiles[p].number == number)
            return (int)p;
    return -1;
}

int mig_profile_by_id(const struct machine_card *c, unsigned id)
{
    for (unsigned p = 0; p < c->profile_count && p < MACHINE_PROFILES; p++)
        if (c->profiles[p].id == id)
            return (int)p;
    return -1;
}

#define LAST_PROFILE_NUMBER 0x1b

static nvmlReturn_t find_profile(const struct machine_card *c, unsigned number, const struct machine_profile **out)
{
    int p = profile_by_number(c, number);
    if (p < 0)
        return number > LAST_PROFILE_NUMBER ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    *out = &c->profiles[p];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_t *info)
{
    MIG_CARD(nvmlDeviceGetGpuInstanceProfileInfo, device);
    NEED(info);
    const struct machine_profile *p;
    nvmlReturn_t rc = find_profile(c, number, &p);
    if (rc == NVML_SUCCESS)
        *info = (nvmlGpuInstanceProfileInfo_t){p->id, p->p2p, p->slices, p->max_count, p->sm_count, p->copy_engines, p->decoders,
                                               p->encoders, p->jpeg, p->ofa, p->memory_mib};
    return rc;
}

static nvmlReturn_t fill_v(const struct machine_profile *p, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    if (info->version == NVML_VERSION(nvmlGpuInstanceProfileInfo_v2_t, 2)) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){info->version, p->id, p->p2p, p->slices, p->max_count, p->sm_count,
                                                  p->copy_engines, p->decoders, p->encoders, p->jpeg, p->ofa, p->memory_mib, ""};
        snprintf(info->name, sizeof info->name, "MIG %s", p->name);
        return NVML_SUCCESS;
    }
    nvmlGpuInstanceProfileInfo_v3_t *v3 = (nvmlGpuInstanceProfileInfo_v3_t *)(void *)info;
    if (v3->version != NVML_VERSION(nvmlGpuInstanceProfileInfo_v3_t, 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    *v3 = (nvmlGpuInstanceProfileInfo_v3_t){v3->version, p->id, p->slices, p->max_count, p->sm_count, p->copy_engines, p->decoders,
                                            p->encoders, p->jpeg, p->ofa, p->memory_mib, "", p->p2p ? 1 : 0};
    snprintf(v3->name, sizeof v3->name, "MIG %s", p->name);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int number, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    MIG_CARD(nvmlDeviceGetGpuInstanceProfileInfoV, device);
    NEED(info);
    const struct machine_profile *p;
    nvmlReturn_t rc = find_profile(c, number, &p);
    return rc ? rc : fill_v(p, info);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    MIG_CARD(nvmlDeviceGetGpuInstanceProfileInfoByIdV, device);
    NEED(info);
    int p = mig_profile_by_id(c, id);
    return p < 0 ? NVML_ERROR_INVALID_ARGUMENT : fill_v(&c->profiles[p], info);
}
