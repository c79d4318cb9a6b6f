/* The cards and devices that there are, their numbers and names. */
#define _GNU_SOURCE
#include "dcmi.h"

#include <stdio.h>
#include <string.h>

static bool initialised;

bool dcmi_ready(void)
{
    return initialised;
}

EXPORT int dcmi_init(void)
{
    if (!npu_attach())
        return DCMI_NOT_READY;
    int held = npu_lock();
    int code = held < 0 ? DCMI_INTERNAL : npu_fault("dcmi_init");
    npu_unlock(held);
    initialised = code == 0;
    return code;
}

bool dcmi_view(int card, int device, struct npu_view *out, unsigned *logic)
{
    struct npu_view views[NPU_VIEWS];
    unsigned count = npu_views(views);
    for (unsigned i = 0; i < count; i++)
        if ((int)views[i].chip->card == card && (int)views[i].chip->device == device) {
            *out = views[i];
            if (logic)
                *logic = i;
            return true;
        }
    return false;
}

EXPORT int dcmi_get_card_list(int *count, int *list, int length)
{
    ENTER(dcmi_get_card_list);
    NEED(count && list && length > 0);
    struct npu_view views[NPU_VIEWS];
    unsigned seen = npu_views(views);
    *count = 0;
    for (unsigned i = 0; i < seen; i++) {
        int card = (int)views[i].chip->card;
        bool known = false;
        for (int k = 0; k < *count; k++)
            known |= list[k] == card;
        if (!known && *count < length)
            list[(*count)++] = card;
    }
    return *count ? DCMI_OK : DCMI_NO_DEVICE;
}

EXPORT int dcmi_get_device_num_in_card(int card, int *count)
{
    ENTER(dcmi_get_device_num_in_card);
    NEED(count);
    struct npu_view views[NPU_VIEWS];
    unsigned seen = npu_views(views);
    int most = -1;
    for (unsigned i = 0; i < seen; i++)
        if ((int)views[i].chip->card == card && (int)views[i].chip->device > most)
            most = (int)views[i].chip->device;
    *count = most + 1;
    return most < 0 ? DCMI_INVALID_DEVICE : DCMI_OK;
}

EXPORT int dcmi_get_device_id_in_card(int card, int *most, int *mcu, int *cpu)
{
    NEED(most && mcu && cpu);
    int code = dcmi_get_device_num_in_card(card, most);
    *mcu = *cpu = -1; /* no such parts on these cards */
    return code;
}

EXPORT int dcmi_get_device_type(int card, int device, int *type)
{
    DEVICE(dcmi_get_device_type, card, device);
    NEED(type);
    *type = 0; /* an NPU */
    return DCMI_OK;
}

EXPORT int dcmi_get_device_logic_id(int *logic, int card, int device)
{
    ENTER(dcmi_get_device_logic_id);
    NEED(logic);
    struct npu_view view;
    unsigned at;
    if (!dcmi_view(card, device, &view, &at))
        return DCMI_INVALID_DEVICE;
    *logic = (int)at;
    return DCMI_OK;
}

EXPORT int dcmi_get_card_id_device_id_from_logicid(int *card, int *device, unsigned logic)
{
    ENTER(dcmi_get_card_id_device_id_from_logicid);
    NEED(card && device);
    struct npu_view views[NPU_VIEWS];
    if (logic >= npu_views(views))
        return DCMI_INVALID_DEVICE;
    *card = (int)views[logic].chip->card;
    *device = (int)views[logic].chip->device;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_phyid_from_logicid(unsigned logic, unsigned *physical)
{
    ENTER(dcmi_get_device_phyid_from_logicid);
    NEED(physical);
    struct npu_view views[NPU_VIEWS];
    if (logic >= npu_views(views))
        return DCMI_INVALID_DEVICE;
    *physical = views[logic].chip->physical;
    return DCMI_OK;
}

EXPORT int dcmi_get_device_logicid_from_phyid(unsigned physical, unsigned *logic)
{
    ENTER(dcmi_get_device_logicid_from_phyid);
    NEED(logic);
    struct npu_view views[NPU_VIEWS];
    unsigned count = npu_views(views);
    for (unsigned i = 0; i < count; i++)
        if (views[i].chip->physical == physical) {
            *logic = i;
            return DCMI_OK;
        }
    return DCMI_INVALID_DEVICE;
}

struct chip_info {
    unsigned char type[32];
    unsigned char name[32];
    unsigned char version[32];
    unsigned cores;
    unsigned char npu[32];
};

EXPORT int dcmi_get_device_chip_info_v2(int card, int device, struct chip_info *info)
{
    DEVICE(dcmi_get_device_chip_info_v2, card, device);
    NEED(info);
    memset(info, 0, sizeof *info);
    strcpy((char *)info->type, "Ascend");
    memcpy(info->name, view.chip->name, sizeof info->name - 1);
    strcpy((char *)info->version, "V1");
    info->cores = npu_size_of(&view)->cores;
    memcpy(info->npu, view.chip->product, sizeof info->npu - 1);
    return DCMI_OK;
}

EXPORT int dcmi_get_device_die_v2(int card, int device, int type, unsigned die[5])
{
    DEVICE(dcmi_get_device_die_v2, card, device);
    NEED(die && (type == 0 || type == 1));
    memcpy(die, view.chip->die, 5 * sizeof *die);
    return DCMI_OK;
}

struct pcie_info {
    unsigned device_id, vendor_id, subvendor_id, subdevice_id;
    int domain;
    unsigned bus, slot, function;
    unsigned char reserve[32];
};

EXPORT int dcmi_get_device_pcie_info_v2(int card, int device, struct pcie_info *info)
{
    DEVICE(dcmi_get_device_pcie_info_v2, card, device);
    NEED(info);
    memset(info, 0, sizeof *info);
    info->vendor_id = info->subvendor_id = 0x19e5;
    unsigned domain = 0;
    if (sscanf(view.chip->bus_id, "%x:%x:%x.%u", &domain, &info->bus, &info->slot, &info->function) != 4)
        return DCMI_INTERNAL;
    info->domain = (int)domain;
    return DCMI_OK;
}

static int text(char *out, int length, const char *what)
{
    NEED(out && length > 0 && (size_t)length > strlen(what));
    strcpy(out, what);
    return DCMI_OK;
}

EXPORT int dcmi_get_product_type(int card, int device, char *out, int length)
{
    DEVICE(dcmi_get_product_type, card, device);
    return text(out, length, view.chip->product);
}

EXPORT int dcmi_get_dcmi_version(char *out, unsigned length)
{
    ENTER(dcmi_get_dcmi_version);
    return text(out, (int)length, npu_attach()->driver_version);
}

EXPORT int dcmi_get_driver_version(char *out, unsigned length)
{
    ENTER(dcmi_get_driver_version);
    return text(out, (int)length, npu_attach()->driver_version);
}
