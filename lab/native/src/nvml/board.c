/* The facts of a board beside its settings: identifier, capabilities, licences, memory that wore out. */
#include "nvml.h"

struct identifier { unsigned version; unsigned long long value; };

EXPORT nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, struct identifier *out)
{
    WHOLE_CARD(nvmlDeviceGetPdi, device);
    NEED(out);
    if (out->version != NVML_VERSION(struct identifier, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->value = 14695981039346656037ull; /* FNV-1a of the UUID: as lasting and as much its own */
    for (const char *at = c->uuid; *at; at++)
        out->value = (out->value ^ (unsigned char)*at) * 1099511628211ull;
    return NVML_SUCCESS;
}

/* Its place on its baseboard, from 1; 0 for a card that sits on none. */
EXPORT nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *module)
{
    WHOLE_CARD(nvmlDeviceGetModuleId, device);
    NEED(module);
    *module = c->link_count ? c->minor + 1 : 0;
    return NVML_SUCCESS;
}

struct capabilities { unsigned version, mask; };

EXPORT nvmlReturn_t nvmlDeviceGetCapabilities(nvmlDevice_t device, struct capabilities *out)
{
    WHOLE_CARD(nvmlDeviceGetCapabilities, device);
    NEED(out);
    if (out->version != NVML_VERSION(struct capabilities, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    out->mask = 0; /* no memory of the host beside its own */
    return NVML_SUCCESS;
}

struct licences { int supported; unsigned count; }; /* features follow, of which there are none */

EXPORT nvmlReturn_t nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, struct licences *out)
{
    WHOLE_CARD(nvmlDeviceGetGridLicensableFeatures_v4, device);
    NEED(out);
    *out = (struct licences){0};
    return NVML_SUCCESS;
}

/* ---- rows and pages that wore out: pages are retired up to Turing, rows remapped from Ampere on ---- */

#define AMPERE 7

static nvmlReturn_t retired(const struct machine_card *c, unsigned cause, unsigned *count)
{
    NEED(count && cause < 2);
    if (c->architecture >= AMPERE || !c->ecc_capable)
        return NVML_ERROR_NOT_SUPPORTED;
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count, unsigned long long *addresses)
{
    WHOLE_CARD(nvmlDeviceGetRetiredPages, device);
    (void)addresses;
    return retired(c, cause, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count,
                                                 unsigned long long *addresses, unsigned long long *times)
{
    WHOLE_CARD(nvmlDeviceGetRetiredPages_v2, device);
    (void)addresses;
    (void)times;
    return retired(c, cause, count);
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *pending)
{
    WHOLE_CARD(nvmlDeviceGetRetiredPagesPendingStatus, device);
    return retired(c, 0, pending);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                              unsigned int *pending, unsigned int *failed)
{
    WHOLE_CARD(nvmlDeviceGetRemappedRows, device);
    NEED(corrected && uncorrected && pending && failed);
    if (c->architecture < AMPERE)
        return NVML_ERROR_NOT_SUPPORTED;
    *corrected = *uncorrected = *pending = *failed = 0;
    return NVML_SUCCESS;
}
