/* Topology of the cards: NUMA, CPUs, common ancestors, peers, NVLink. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS (8 * sizeof(unsigned long))

/* "0-3,8,10-11" as a bit mask */
static void cpu_mask(const char *list, unsigned words, unsigned long *mask)
{
    memset(mask, 0, words * sizeof *mask);
    while (*list) {
        char *end;
        unsigned long first = strtoul(list, &end, 10), last = first;
        if (end == list)
            return;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long cpu = first; cpu <= last && cpu < words * WORD_BITS; cpu++)
            mask[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
        list = *end == ',' ? end + 1 : end;
    }
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned int words, unsigned long *mask)
{
    DEVICE(nvmlDeviceGetCpuAffinity, device);
    NEED(words > 0 && mask);
    char online[256] = "";
    FILE *file = c->cpu_affinity[0] ? NULL : fopen("/sys/devices/system/cpu/online", "re"); /* of no node: near them all */
    if (file) {
        if (!fgets(online, sizeof online, file))
            online[0] = 0;
        fclose(file);
    }
    cpu_mask(file ? online : c->cpu_affinity, words, mask);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned int words, unsigned long *mask, unsigned int scope)
{
    NEED(scope <= 1);
    return nvmlDeviceGetCpuAffinity(device, words, mask);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int words, unsigned long *mask, unsigned int scope)
{
    DEVICE(nvmlDeviceGetMemoryAffinity, device);
    NEED(words > 0 && mask && scope <= 1);
    if (c->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(mask, 0, words * sizeof *mask);
    if ((unsigned)c->numa_node < words * WORD_BITS)
        mask[(unsigned)c->numa_node / WORD_BITS] = 1ul << (unsigned)c->numa_node % WORD_BITS;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node)
{
    DEVICE(nvmlDeviceGetNumaNodeId, device);
    NEED(node);
    if (c->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned)c->numa_node;
    return NVML_SUCCESS;
}

/* ---- between two cards ---- */

#define TWO(function, one, other) \
    WHOLE_CARD(function, one); \
    struct target u; \
    do { nvmlReturn_t second_ = nvml_target(other, &u); if (second_) return second_; } while (0); \
    NEED(u.gi < 0);

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned int *level)
{
    TWO(nvmlDeviceGetTopologyCommonAncestor, one, other);
    NEED(level);
    *level = t.card == u.card ? 0 : c->topology[u.card];
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, unsigned int level, unsigned int *count, nvmlDevice_t *out)
{
    WHOLE_CARD(nvmlDeviceGetTopologyNearestGpus, device);
    NEED(count);
    unsigned room = *count, found = 0;
    for (unsigned card = 0; card < the_machine->cards; card++) {
        if (card == t.card || visible_index(card) < 0 || c->topology[card] > level)
            continue;
        if (out && found < room)
            out[found] = nvml_card_handle(card);
        found++;
    }
    *count = found;
    return out && found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t one, nvmlDevice_t other, int *same)
{
    TWO(nvmlDeviceOnSameBoard, one, other);
    NEED(same);
    *same = t.card == u.card || c->topology[u.card] == 0;
    return NVML_SUCCESS;
}

/* Capabilities: 0 read, 1 write, 2 NVLink, 3 atomics, 4 PCI. Status: 0 ok, 4 chip set not supported, 5 no such way … */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other, unsigned int capability, unsigned int *status)
{
    TWO(nvmlDeviceGetP2PStatus, one, other);
    NEED(status && capability < 6);
    (void)c;
    bool yes = cards_peers(t.card, u.card) && ((capability != 2 && capability != 3) || cards_linked(t.card, u.card));
    *status = yes ? 0 : 5;
    return NVML_SUCCESS;
}

/* ---- NVLink ---- */

#define LINK(function) \
    WHOLE_CARD(function, device); \
    NEED(link < MACHINE_LINKS); \
    if (c->link_count == 0) \
        return NVML_ERROR_NOT_SUPPORTED; \
    NEED(link < c->link_count && c->links[link].version);

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *up)
{
    LINK(nvmlDeviceGetNvLinkState);
    NEED(up);
    *up = RELAXED(&c->links[link].up);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    LINK(nvmlDeviceGetNvLinkVersion);
    NEED(version);
    *version = c->links[link].version;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link, unsigned int capability, unsigned int *out)
{
    LINK(nvmlDeviceGetNvLinkCapability);
    NEED(out && capability < 6);
    *out = capability != 4 && capability != 5; /* all but SLI bridge and valid-for-SLI */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type)
{
    LINK(nvmlDeviceGetNvLinkRemoteDeviceType);
    NEED(type);
    *type = c->links[link].remote_card < the_machine->cards ? 0 : 2; /* a GPU, or a switch */
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter, unsigned long long *out)
{
    LINK(nvmlDeviceGetNvLinkErrorCounter);
    NEED(out && counter < 5);
    *out = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci);
nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci);

#define REMOTE_PCI(name, form, get) \
    EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned int link, form *pci) \
    { \
        LINK(name); \
        NEED(pci); \
        if (c->links[link].remote_card < the_machine->cards) \
            return get(nvml_card_handle(c->links[link].remote_card), pci); \
        memset(pci, 0, sizeof *pci); /* a switch has an address of its own, which nobody here needs */ \
        return NVML_SUCCESS; \
    }
REMOTE_PCI(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlPciInfo_t, nvmlDeviceGetPciInfo_v3)
REMOTE_PCI(nvmlDeviceGetNvLinkRemotePciInfo, nvmlPciInfo_v2_t, nvmlDeviceGetPciInfo_v2)
