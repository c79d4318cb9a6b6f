/* The measurements of a device: health, errors, memory, load, warmth. */
#define _GNU_SOURCE
#include "dcmi.h"

#include <string.h>

EXPORT int dcmi_get_device_health(int card, int device, unsigned *health)
{
    DEVICE(dcmi_get_device_health, card, device);
    NEED(health);
    *health = view.chip->health;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_errorcode_v2(int card, int device, int *count, unsigned *codes, unsigned length)
{
    DEVICE(dcmi_get_device_errorcode_v2, card, device);
    NEED(count && codes && length);
    *count = 0;
    for (unsigned i = 0; i < view.chip->error_count && i < NPU_ERRORS && i < length; i++)
        codes[(*count)++] = view.chip->errors[i];
    return DCMI_OK;
}

/* MiB that processes hold of what this process sees: of a whole chip its slices' too. */
static uint64_t used_mib(const struct npu_view *view)
{
    npu_reap(view->chip);
    uint64_t bytes = npu_held(view->chip, view->slice ? view->slice->id : 0, NULL);
    for (unsigned i = 0; !view->slice && i < NPU_SLICES; i++)
        if (view->chip->slices[i].used)
            bytes += npu_held(view->chip, view->chip->slices[i].id, NULL);
    return (bytes + (1 << 20) - 1) >> 20;
}

struct memory_info {
    uint64_t size, available;
    unsigned frequency;
    uint64_t huge_page_kib, huge_pages, huge_pages_free;
    unsigned utilization;
    unsigned char reserve[60];
};

EXPORT int dcmi_get_device_memory_info_v3(int card, int device, struct memory_info *info)
{
    DEVICE(dcmi_get_device_memory_info_v3, card, device);
    NEED(info);
    memset(info, 0, sizeof *info);
    if (view.chip->hbm)
        return DCMI_OK; /* these have HBM and no memory beside it */
    uint64_t total = npu_size_of(&view)->memory_mib, used = used_mib(&view);
    info->size = total;
    info->available = total - used;
    info->utilization = (unsigned)(100 * used / total);
    return DCMI_OK;
}

struct hbm_info {
    uint64_t size;
    unsigned frequency;
    uint64_t used;
    int temperature;
    unsigned bandwidth;
};

EXPORT int dcmi_get_device_hbm_info(int card, int device, struct hbm_info *info)
{
    DEVICE(dcmi_get_device_hbm_info, card, device);
    NEED(info);
    if (!view.chip->hbm)
        return DCMI_NOT_SUPPORTED;
    *info = (struct hbm_info){npu_size_of(&view)->memory_mib, 1600, used_mib(&view), (int)view.chip->temperature, 0};
    return DCMI_OK;
}

/* Cores that work at this moment, in per cent of those that this process sees; type 2: the AI cores. */
EXPORT int dcmi_get_device_utilization_rate(int card, int device, int type, unsigned *rate)
{
    DEVICE(dcmi_get_device_utilization_rate, card, device);
    NEED(rate);
    if (type != 2)
        return DCMI_NOT_SUPPORTED;
    const struct npu_chip *chip = view.chip;
    uint64_t now = npu_now_ns();
    unsigned busy = 0;
    if (view.slice) {
        *rate = view.slice->busy_until_ns > now ? 100 : 0;
        return DCMI_OK;
    }
    for (unsigned i = 0; i < NPU_SLICES; i++)
        if (chip->slices[i].used && chip->slices[i].busy_until_ns > now)
            busy += chip->templates[chip->slices[i].template].size.cores;
    *rate = chip->busy_until_ns > now ? 100 : 100 * busy / chip->size.cores;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_temperature(int card, int device, int *celsius)
{
    DEVICE(dcmi_get_device_temperature, card, device);
    NEED(celsius);
    *celsius = (int)view.chip->temperature;
    return DCMI_OK;
}

/* In tenths of a watt. */
EXPORT int dcmi_get_device_power_info(int card, int device, int *power)
{
    DEVICE(dcmi_get_device_power_info, card, device);
    NEED(power);
    *power = (int)view.chip->power_dw;
    return DCMI_OK;
}
