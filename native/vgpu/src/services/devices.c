/*
 * Which driver device is which index of the region (HAMi-core src): by the identity of the hardware, never by position.
 * The region's order is NVML's order in the container.
 */
#include "core/granted.h"
#include "core/log.h"
#include "core/waits.h"
#include "services/process_state.h"
#include "services/nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PCI_TEXT = 32 };

static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

/* "GPU-…" or "MIG-…": the part behind the first dash identifies. */
static const char *bare(const char *uuid)
{
    const char *dash = strchr(uuid, '-');
    return dash != NULL ? dash + 1 : uuid;
}

/* Under a limits page this process's own list: what anybody may write into the region names no card then. */
static char named[REGION_DEVICES][REGION_UUID_BYTES];
static uint64_t named_count;
static int nvml_index[REGION_DEVICES]; /* of each of them; -1: NVML does not list it */

static uint64_t count_of_names(void)
{
    return shared_peek(process_state.map.page != NULL ? &named_count : &process_state.map.region->device_num);
}

static int index_by_uuid(const char *uuid)
{
    char(*names)[REGION_UUID_BYTES] = process_state.map.page != NULL ? named : process_state.map.region->uuids;
    for (int i = 0; i < REGION_DEVICES && (uint64_t)i < count_of_names(); i++) {
        char held[REGION_UUID_BYTES];
        memcpy(held, names[i], sizeof held);
        held[sizeof held - 1] = '\0';
        if (held[0] != '\0' && strcasecmp(bare(held), bare(uuid)) == 0)
            return i;
    }
    return -1;
}

static bool is_granted(const struct limits_page *page, const char *uuid)
{
    for (uint32_t i = 0; i < granted_cards(page); i++)
        if (strcasecmp(bare(page->cards[i].uuid), bare(uuid)) == 0)
            return true;
    return false;
}

/* The page's cards in its order, for its limits are numbered so; behind them whatever else there is to be seen, which was not granted. */
static unsigned arrange(const struct limits_page *page, char uuids[][REGION_UUID_BYTES], unsigned count)
{
    uint64_t known = granted_cards(page);
    memset(named, 0, sizeof named);
    for (uint32_t i = 0; i < known; i++) {
        memcpy(named[i], page->cards[i].uuid, REGION_UUID_BYTES - 1);
        nvml_index[i] = -1;
        for (unsigned at = 0; at < count; at++)
            if (strcasecmp(bare(uuids[at]), bare(named[i])) == 0)
                nvml_index[i] = (int)at;
    }
    for (unsigned i = 0; i < count && known < REGION_DEVICES; i++)
        if (uuids[i][0] != '\0' && !is_granted(page, uuids[i])) {
            nvml_index[known] = (int)i;
            memcpy(named[known++], uuids[i], REGION_UUID_BYTES);
        }
    memcpy(uuids, named, sizeof named);
    shared_set(&named_count, known);
    return (unsigned)known;
}

/* Everybody would write the same; the count comes last, so that a reader meets only complete names. */
static void tell(char uuids[][REGION_UUID_BYTES], uint64_t count)
{
    struct region *region = process_state.map.region;
    if (shared_peek(&region->device_num) == count && memcmp(region->uuids, uuids, sizeof region->uuids) == 0)
        return;
    memcpy(region->uuids, uuids, sizeof region->uuids);
    shared_set(&region->device_num, count);
}

static void publish(char uuids[][REGION_UUID_BYTES], unsigned count)
{
    tell(uuids, process_state.map.page != NULL ? arrange(process_state.map.page, uuids, count) : count);
}

/* Without the lock, which a child would find taken for ever: names that are just being written are told whole a second later. */
void devices_tell_again(void)
{
    if (process_state.map.page != NULL && count_of_names() > 0)
        tell(named, count_of_names());
}

static void devices_from_nvml(void)
{
    unsigned count = 0;
    if (!own_nvml())
        return;
    if (NVML(nvmlDeviceGetCount_v2(&count)) != NVML_SUCCESS) {
        own_nvml_done();
        return;
    }
    if (count > REGION_DEVICES) {
        warn_once(&process_state.map, LOG_LEVEL_WARNING, WARN_TOO_MANY, "%u devices: those from index %d on have no limits", count,
                  REGION_DEVICES);
        count = REGION_DEVICES;
    }
    mutex_take(&naming);
    char uuids[REGION_DEVICES][REGION_UUID_BYTES];
    memset(uuids, 0, sizeof uuids); /* monitors compare all 96 bytes */
    for (unsigned i = 0; i < count; i++) {
        nvmlDevice device;
        if (NVML(nvmlDeviceGetHandleByIndex_v2(i, &device)) != NVML_SUCCESS ||
            NVML(nvmlDeviceGetUUID(device, uuids[i], REGION_UUID_BYTES)) != NVML_SUCCESS)
            uuids[i][0] = '\0';
        size_t length = strnlen(uuids[i], REGION_UUID_BYTES - 1);
        memset(uuids[i] + length, 0, REGION_UUID_BYTES - length);
    }
    publish(uuids, count);
    pthread_mutex_unlock(&naming);
    own_nvml_done();
}

void devices_name(void)
{
    if (count_of_names() == 0)
        devices_from_nvml();
}

static bool cuda_uuid(CUdevice device, char *text)
{
    struct cuda_uuid uuid;
    CUresult rc = CUDA(cuDeviceGetUuid_v2(&uuid, device));
    if (rc == CUDA_ERROR_NOT_FOUND)
        rc = CUDA(cuDeviceGetUuid(&uuid, device));
    if (rc != CUDA_SUCCESS)
        return false;
    int used = snprintf(text, 8, "GPU-");
    for (int i = 0; i < 16; i++)
        used += sprintf(text + used, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid.bytes[i]);
    return true;
}

/* NVML writes the domain with eight digits, the driver with four. */
static bool same_bus(const char *a, const char *b)
{
    size_t x = strlen(a), y = strlen(b), tail = 12; /* 0000:07:00.0 */
    return x >= tail && y >= tail && strcasecmp(a + x - tail, b + y - tail) == 0;
}

/* An instance of a partitioned card has a UUID that NVML lists under the card: the card's bus address leads to the index. */
static int index_by_bus(CUdevice device)
{
    char wanted[PCI_TEXT];
    int index = -1;
    if (!own_nvml())
        return -1;
    bool able = CUDA(cuDeviceGetPCIBusId(wanted, sizeof wanted, device)) == CUDA_SUCCESS;
    for (unsigned i = 0; able && index < 0 && i < REGION_DEVICES; i++) {
        nvmlDevice handle;
        struct nvml_pci pci;
        if (NVML(nvmlDeviceGetHandleByIndex_v2(i, &handle)) != NVML_SUCCESS)
            break;
        if (NVML(nvmlDeviceGetPciInfo_v3(handle, &pci)) == NVML_SUCCESS && same_bus(pci.bus_id, wanted))
            index = process_nvml_device(handle);
    }
    own_nvml_done();
    return index;
}

/* Without NVML the devices that CUDA shows, in the order of their bus addresses, are all there is. */
static void publish_cuda_devices(int count)
{
    struct {
        char bus[PCI_TEXT], uuid[REGION_UUID_BYTES];
    } found[REGION_DEVICES], swap;
    memset(found, 0, sizeof found);
    int known = 0;
    for (int i = 0; i < count && known < REGION_DEVICES; i++) {
        if (!cuda_uuid(i, found[known].uuid))
            continue;
        if (CUDA(cuDeviceGetPCIBusId(found[known].bus, PCI_TEXT, i)) == CUDA_SUCCESS)
            known++;
    }
    for (int i = 1; i < known; i++)
        for (int j = i; j > 0 && strcmp(found[j].bus, found[j - 1].bus) < 0; j--)
            swap = found[j], found[j] = found[j - 1], found[j - 1] = swap;
    char uuids[REGION_DEVICES][REGION_UUID_BYTES];
    memset(uuids, 0, sizeof uuids);
    for (int i = 0; i < known; i++)
        memcpy(uuids[i], found[i].uuid, strlen(found[i].uuid));
    publish(uuids, (unsigned)known);
}

/* What the limits cannot mean on these cards, of the first card that shows it. Memory limits fail closed, and it is said. */
static void tell_misfits(void)
{
    bool gap = false, above = process_state.config.oversubscribe;
    for (int device = 0; device < REGION_DEVICES; device++) {
        int ordinal = process_state.ordinal_of[device];
        uint64_t limit = memory_limit(&process_state.map, device);
        size_t card = 0;
        if (ordinal < 0 || limit == 0)
            continue;
        if (!gap && process_state.map.page != NULL && limit == GRANTED_NOTHING_BYTES) {
            gap = true;
            warn_once(&process_state.map, LOG_LEVEL_WARNING, WARN_NO_OWN_LIMIT, "device %d was not granted to this container: it has no memory",
                      device);
        }
        if (!gap && process_state.config.memory_gap[device] && limit == process_state.config.memory_limit[device]) {
            gap = true;
            warn_once(&process_state.map, LOG_LEVEL_WARNING, WARN_NO_OWN_LIMIT,
                      "device %d has no memory limit of its own: the smallest of the others holds, %llu bytes", device,
                      (unsigned long long)limit);
        }
        if (!above && CUDA(cuDeviceTotalMem_v2(&card, ordinal)) == CUDA_SUCCESS && limit > card) {
            above = true;
            warn_once(&process_state.map, LOG_LEVEL_WARNING, WARN_ABOVE_CARD,
                      "device %d: a memory limit of %llu bytes is above the card's %llu, which hold", device,
                      (unsigned long long)limit, (unsigned long long)card);
        }
    }
}

void devices_from_cuda(void)
{
    int count = 0;
    if (CUDA(cuDeviceGetCount(&count)) != CUDA_SUCCESS)
        return;
    count = count < ORDINALS ? count : ORDINALS;
    devices_name();
    if (count_of_names() == 0)
        publish_cuda_devices(count);
    memset(process_state.ordinal_of, -1, sizeof process_state.ordinal_of);
    for (int ordinal = 0; ordinal < count; ordinal++) {
        char uuid[REGION_UUID_BYTES];
        int index = cuda_uuid(ordinal, uuid) ? index_by_uuid(uuid) : -1;
        if (index < 0)
            index = index_by_bus(ordinal);
        if (index < 0 && process_state.map.page != NULL)
            index = REGION_DEVICES - 1; /* beyond what has room: it was not granted either */
        if (index < 0)
            log_warning("CUDA device %d is none of the region's: it has no limits", ordinal);
        process_state.index_of[ordinal] = (int16_t)index;
        if (index >= 0)
            process_state.ordinal_of[index] = (int16_t)ordinal;
    }
    __atomic_store_n(&process_state.device_count, count, __ATOMIC_RELEASE);
    tell_misfits();
}

int process_device(CUdevice device)
{
    int count = __atomic_load_n(&process_state.device_count, __ATOMIC_ACQUIRE);
    if (count == 0) {
        /* The process was initialised on a path that we did not see, or it is the child of one that was. */
        devices_from_cuda();
        count = __atomic_load_n(&process_state.device_count, __ATOMIC_ACQUIRE);
    }
    return device >= 0 && device < count ? process_state.index_of[device] : -1;
}

int process_location(const struct mem_location *location)
{
    if (location->type == LOCATION_PART_OF_DEVICE) /* deviceId and the number of the part, a byte each */
        return process_device(location->id & 0xff);
    return location->type == LOCATION_DEVICE ? process_device(location->id) : -1;
}

int process_current_device(void)
{
    CUdevice device;
    if (CUDA(cuCtxGetDevice(&device)) != CUDA_SUCCESS)
        return -1;
    return process_device(device);
}

bool process_nvml_handle(int device, nvmlDevice *handle)
{
    int index = process_state.map.page != NULL ? nvml_index[device] : device;
    return index >= 0 && NVML(nvmlDeviceGetHandleByIndex_v2((unsigned)index, handle)) == NVML_SUCCESS;
}

int process_nvml_device(nvmlDevice device)
{
    char uuid[REGION_UUID_BYTES];
    if (NVML(nvmlDeviceGetUUID(device, uuid, sizeof uuid)) != NVML_SUCCESS)
        return -1;
    return index_by_uuid(uuid);
}
