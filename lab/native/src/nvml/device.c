/* Handles, and who a card is. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- handles ---- */

#define TAG 0x0deull
#define WHOLE 0xff

static nvmlDevice_t handle_make(unsigned card, unsigned gi, unsigned ci, uint64_t generation)
{
    return (nvmlDevice_t)(TAG << 52 | (generation & 0xffffff) << 28 | (uint64_t)card << 20 | gi << 12 | ci << 4);
}

nvmlDevice_t nvml_card_handle(unsigned card)
{
    return handle_make(card, WHOLE, 0, 0);
}

nvmlDevice_t nvml_mig_handle(unsigned card, unsigned gi, unsigned ci)
{
    return handle_make(card, gi, ci, card_at(card)->instances[gi].compute[ci].generation);
}

nvmlReturn_t nvml_target(nvmlDevice_t handle, struct target *out)
{
    uint64_t v = (uint64_t)handle;
    unsigned card = v >> 20 & 0xff, gi = v >> 12 & 0xff, ci = v >> 4 & 0xff;
    if (v >> 52 != TAG || v & 0xf || card >= the_machine->cards)
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = (struct target){card, -1, -1};
    if (gi != WHOLE) {
        if (gi >= MACHINE_INSTANCES || ci >= MACHINE_INSTANCES)
            return NVML_ERROR_INVALID_ARGUMENT;
        const struct machine_gpu_instance *g = &card_at(card)->instances[gi];
        const struct machine_compute_instance *i = &g->compute[ci];
        if (!LOAD(&g->used) || !LOAD(&i->used) || (i->generation & 0xffffff) != (v >> 28 & 0xffffff))
            return NVML_ERROR_INVALID_ARGUMENT;
        out->gi = (int)gi;
        out->ci = (int)ci;
    }
    return card_lost(card) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    ENTER(nvmlDeviceGetCount_v2);
    NEED(count);
    *count = visible_count();
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

static nvmlReturn_t card_found(unsigned card, nvmlDevice_t *out)
{
    if (visible_index(card) < 0)
        return NVML_ERROR_NOT_FOUND;
    *out = nvml_card_handle(card);
    return card_lost(card) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    ENTER(nvmlDeviceGetHandleByIndex_v2);
    NEED(out && index < visible_count());
    return card_found(visible_card(index), out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByIndex_v2(index, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    ENTER(nvmlDeviceGetHandleByUUID);
    NEED(uuid && out);
    for (unsigned card = 0; card < the_machine->cards; card++) {
        const struct machine_card *c = card_at(card);
        if (strcmp(c->uuid, uuid) == 0 || strcmp(c->uuid + strlen("GPU-"), uuid) == 0) /* as CUDA's programs write it, too */
            return card_found(card, out);
        for (unsigned g = 0; visible_index(card) >= 0 && g < MACHINE_INSTANCES; g++)
            for (unsigned i = 0; LOAD(&c->instances[g].used) && i < MACHINE_INSTANCES; i++)
                if (LOAD(&c->instances[g].compute[i].used) && strcmp(c->instances[g].compute[i].uuid, uuid) == 0 &&
                    visible_instance(the_machine, card, uuid)) {
                    *out = nvml_mig_handle(card, g, i);
                    return card_lost(card) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
                }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* {version; type: 1 text, 2 bytes; char text[41] or bytes[16]} */
struct uuid_v1 { unsigned version, type; union { char text[41]; unsigned char bytes[16]; } value; };

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const struct uuid_v1 *uuid, nvmlDevice_t *out)
{
    ENTER(nvmlDeviceGetHandleByUUIDV);
    NEED(uuid && out);
    if (uuid->version >> 24 != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return uuid->type == 1 ? nvmlDeviceGetHandleByUUID(uuid->value.text, out) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out)
{
    ENTER(nvmlDeviceGetHandleBySerial);
    NEED(serial && out && *serial);
    for (unsigned card = 0; card < the_machine->cards; card++)
        if (strcmp(card_at(card)->serial, serial) == 0)
            return card_found(card, out);
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *out)
{
    ENTER(nvmlDeviceGetHandleByPciBusId_v2);
    unsigned domain, bus, device;
    NEED(id && out);
    if (sscanf(id, "%x:%x:%x", &domain, &bus, &device) != 3) {
        domain = 0;
        NEED(sscanf(id, "%x:%x", &bus, &device) == 2);
    }
    for (unsigned card = 0; card < the_machine->cards; card++) {
        const struct machine_card *c = card_at(card);
        if (c->pci_domain == domain && c->pci_bus == bus && c->pci_device == device)
            return card_found(card, out);
    }
    return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *out)
{
    return nvmlDeviceGetHandleByPciBusId_v2(id, out);
}

/* ---- identity ---- */

/* A card by its product name; an instance as the driver names it: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "… MIG 1c.3g.20gb". */
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    DEVICE(nvmlDeviceGetName, device);
    if (t.gi < 0)
        return nvml_text(name, length, c->name);
    const struct machine_gpu_instance *g = &c->instances[t.gi];
    const struct machine_profile *p = mig_profile_of(c, g);
    char text[192];
    if (g->compute[t.ci].slices < p->slices)
        snprintf(text, sizeof text, "%s MIG %uc.%s", c->name, g->compute[t.ci].slices, p->name);
    else
        snprintf(text, sizeof text, "%s MIG %s", c->name, p->name);
    return nvml_text(name, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    DEVICE(nvmlDeviceGetUUID, device);
    return nvml_text(uuid, length, t.gi < 0 ? c->uuid : c->instances[t.gi].compute[t.ci].uuid);
}

/* The instances that this process sees are numbered by GPU instance id, then compute instance id. */
unsigned nvml_mig_index(unsigned card, unsigned gi, unsigned ci)
{
    unsigned before = 0;
    const struct machine_card *c = card_at(card);
    const struct machine_gpu_instance *mine = &c->instances[gi];
    for (unsigned g = 0; g < MACHINE_INSTANCES; g++)
        for (unsigned i = 0; LOAD(&c->instances[g].used) && i < MACHINE_INSTANCES; i++)
            if (LOAD(&c->instances[g].compute[i].used) && visible_instance(the_machine, card, c->instances[g].compute[i].uuid) &&
                (c->instances[g].id < mine->id ||
                 (c->instances[g].id == mine->id && c->instances[g].compute[i].id < mine->compute[ci].id)))
                before++;
    return before;
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    DEVICE(nvmlDeviceGetIndex, device);
    NEED(index);
    *index = t.gi < 0 ? (unsigned)visible_index(t.card) : nvml_mig_index(t.card, (unsigned)t.gi, (unsigned)t.ci);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
    WHOLE_CARD(nvmlDeviceGetMinorNumber, device);
    NEED(minor);
    *minor = c->minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
    WHOLE_CARD(nvmlDeviceGetSerial, device);
    return c->serial[0] ? nvml_text(serial, length, c->serial) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length)
{
    WHOLE_CARD(nvmlDeviceGetVbiosVersion, device);
    return nvml_text(version, length, c->vbios);
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *number, unsigned int length)
{
    WHOLE_CARD(nvmlDeviceGetBoardPartNumber, device);
    return c->part_number[0] ? nvml_text(number, length, c->part_number) : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *id)
{
    WHOLE_CARD(nvmlDeviceGetBoardId, device);
    NEED(id);
    *id = c->pci_domain << 16 | c->pci_bus << 8;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand)
{
    WHOLE_CARD(nvmlDeviceGetBrand, device);
    NEED(brand);
    *brand = c->brand;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture)
{
    DEVICE(nvmlDeviceGetArchitecture, device);
    NEED(architecture);
    *architecture = c->architecture;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    DEVICE(nvmlDeviceGetCudaComputeCapability, device);
    NEED(major && minor);
    *major = (int)c->cc_major;
    *minor = (int)c->cc_minor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *count)
{
    WHOLE_CARD(nvmlDeviceGetNumGpuCores, device);
    NEED(count);
    *count = c->sm_count * (c->cc_major == 8 && c->cc_minor != 0 ? 128u : c->cc_major >= 9 ? 128u : c->cc_major == 6 && c->cc_minor ? 128u : 64u);
    return NVML_SUCCESS;
}

/* ---- PCI ---- */

static void pci_texts(const struct machine_card *c, char full[32], char legacy[16])
{
    snprintf(full, 32, "%08X:%02X:%02X.0", c->pci_domain, c->pci_bus & 0xff, c->pci_device & 0xff);
    snprintf(legacy, 16, "%04X:%02X:%02X.0", c->pci_domain & 0xffff, c->pci_bus & 0xff, c->pci_device & 0xff);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    DEVICE(nvmlDeviceGetPciInfo_v3, device);
    NEED(pci);
    memset(pci, 0, sizeof *pci);
    pci_texts(c, pci->busId, pci->busIdLegacy);
    pci->domain = c->pci_domain, pci->bus = c->pci_bus, pci->device = c->pci_device;
    pci->pciDeviceId = c->pci_device_id, pci->pciSubSystemId = c->pci_subsystem_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    DEVICE(nvmlDeviceGetPciInfo_v2, device);
    NEED(pci);
    char full[32];
    memset(pci, 0, sizeof *pci);
    pci_texts(c, full, pci->busId);
    pci->domain = c->pci_domain, pci->bus = c->pci_bus, pci->device = c->pci_device;
    pci->pciDeviceId = c->pci_device_id, pci->pciSubSystemId = c->pci_subsystem_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v1_t *pci)
{
    DEVICE(nvmlDeviceGetPciInfo, device);
    NEED(pci);
    char full[32];
    memset(pci, 0, sizeof *pci);
    pci_texts(c, full, pci->busId);
    pci->domain = c->pci_domain, pci->bus = c->pci_bus, pci->device = c->pci_device, pci->pciDeviceId = c->pci_device_id;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci)
{
    DEVICE(nvmlDeviceGetPciInfoExt, device);
    NEED(pci);
    if (pci->version != NVML_VERSION(nvmlPciInfoExt_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    char legacy[16];
    pci_texts(c, pci->busId, legacy);
    pci->domain = c->pci_domain, pci->bus = c->pci_bus, pci->device = c->pci_device;
    pci->pciDeviceId = c->pci_device_id, pci->pciSubSystemId = c->pci_subsystem_id;
    pci->baseClass = 3, pci->subClass = 2;
    return NVML_SUCCESS;
}

#define PCIE(name, expression) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int *out) \
    { \
        WHOLE_CARD(name, device); \
        NEED(out); \
        *out = (expression); \
        return NVML_SUCCESS; \
    }
PCIE(nvmlDeviceGetMaxPcieLinkGeneration, c->pcie_generation ? c->pcie_generation : 4)
PCIE(nvmlDeviceGetGpuMaxPcieLinkGeneration, c->pcie_generation ? c->pcie_generation : 4)
PCIE(nvmlDeviceGetCurrPcieLinkGeneration, c->pcie_generation ? c->pcie_generation : 4)
PCIE(nvmlDeviceGetMaxPcieLinkWidth, c->pcie_width ? c->pcie_width : 16)
PCIE(nvmlDeviceGetCurrPcieLinkWidth, c->pcie_width ? c->pcie_width : 16)
PCIE(nvmlDeviceGetPcieReplayCounter, 0)
PCIE(nvmlDeviceGetMultiGpuBoard, 0)
PCIE(nvmlDeviceGetMemoryBusWidth, c->memory_bus_bits)

EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter, unsigned int *value)
{
    WHOLE_CARD(nvmlDeviceGetPcieThroughput, device);
    NEED(value && counter < 2);
    *value = 0;
    return NVML_SUCCESS;
}
