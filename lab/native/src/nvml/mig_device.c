/* MIG devices: a compute instance seen as a device. */
#define _GNU_SOURCE
#include "mig.h"

EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    DEVICE(nvmlDeviceIsMigDeviceHandle, device);
    NEED(is);
    *is = t.gi >= 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    WHOLE_CARD(nvmlDeviceGetMaxMigDeviceCount, device);
    NEED(count);
    *count = !c->mig_capable ? 0 : c->mig_compute_slices ? c->mig_compute_slices : 7;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *out)
{
    WHOLE_CARD(nvmlDeviceGetMigDeviceHandleByIndex, device);
    NEED(out);
    if (!c->mig_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    NEED(index < (c->mig_compute_slices ? c->mig_compute_slices : 7));
    nvmlReturn_t rc = NVML_ERROR_NOT_FOUND;
    card_lock(t.card);
    for (unsigned g = 0; g < MACHINE_INSTANCES && c->mig_mode; g++) {
        for (unsigned i = 0; c->instances[g].used && i < MACHINE_INSTANCES; i++) {
            if (c->instances[g].compute[i].used && visible_instance(the_machine, t.card, c->instances[g].compute[i].uuid) &&
                nvml_mig_index(t.card, g, i) == index) {
                *out = nvml_mig_handle(t.card, g, i);
                rc = NVML_SUCCESS;
            }
        }
    }
    card_unlock(t.card);
    return rc;
}

#define MIG_DEVICE(function, device) \
    DEVICE(function, device); \
    NEED(t.gi >= 0);

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out)
{
    MIG_DEVICE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, device);
    NEED(out);
    *out = nvml_card_handle(t.card);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
    MIG_DEVICE(nvmlDeviceGetGpuInstanceId, device);
    NEED(id);
    *id = c->instances[t.gi].id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
    MIG_DEVICE(nvmlDeviceGetComputeInstanceId, device);
    NEED(id);
    *id = c->instances[t.gi].compute[t.ci].id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    DEVICE(nvmlDeviceGetAttributes_v2, device);
    NEED(out);
    if (t.gi < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    const struct machine_gpu_instance *g = &c->instances[t.gi];
    const struct machine_profile *p = mig_profile_of(c, g);
    unsigned slices = g->compute[t.ci].slices;
    *out = (nvmlDeviceAttributes_t){mig_sm_count(p, slices), p->copy_engines, p->decoders, p->encoders, p->jpeg, p->ofa, p->slices,
                                    slices, p->memory_mib};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
    return nvmlDeviceGetAttributes_v2(device, out);
}
