/* Devices: what cuInit listed. */
#define _GNU_SOURCE
#include "vmm.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool valid(CUdevice device)
{
    return device >= 0 && device < cu.device_count;
}
#define DEVICE(function, device) \
    ENTER_DEVICE(function, device); \
    const struct machine_card *c = card_at(cu.devices[device].card); \
    (void)c;

EXPORT CUresult cuDeviceGetCount(int *count)
{
    ENTER(cuDeviceGetCount);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = cu.device_count;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(cuDeviceGet);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!valid(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int length, CUdevice device)
{
    DEVICE(cuDeviceGetName, device);
    if (!name || length <= 0)
        return CUDA_ERROR_INVALID_VALUE;
    const struct device *d = &cu.devices[device];
    if (d->lane == 0)
        snprintf(name, (size_t)length, "%s", c->name);
    else
        snprintf(name, (size_t)length, "%s MIG %s", c->name, c->profiles[c->instances[d->lane - 1].profile].name);
    return CUDA_SUCCESS;
}

/* The first form names the card, the second the instance if it is one. */
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    DEVICE(cuDeviceGetUuid, device);
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    memset(uuid, 0, sizeof *uuid);
    int nibble = 0;
    for (const char *at = c->uuid + 4; *at && nibble < 32; at++) {
        if (!isxdigit((unsigned char)*at))
            continue;
        int value = isdigit((unsigned char)*at) ? *at - '0' : tolower((unsigned char)*at) - 'a' + 10;
        uuid->bytes[nibble / 2] = (char)(uuid->bytes[nibble / 2] << 4 | value);
        nibble++;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    DEVICE(cuDeviceGetUuid_v2, device);
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(uuid->bytes, cu.devices[device].uuid, 16);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice device)
{
    DEVICE(cuDeviceGetLuid, device);
    (void)luid;
    (void)mask;
    return CUDA_ERROR_NOT_SUPPORTED; /* a Windows thing */
}

static uint64_t total_memory(CUdevice device)
{
    const struct device *d = &cu.devices[device];
    const struct machine_card *c = card_at(d->card);
    return d->lane ? memory_capacity(d->card, d->lane) : c->memory_bytes - c->reserved_bytes;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    DEVICE(cuDeviceTotalMem_v2, device);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = total_memory(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    DEVICE(cuDeviceTotalMem, device);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t total = total_memory(device);
    *bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned)total;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    DEVICE(cuDeviceComputeCapability, device);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)c->cc_major;
    *minor = (int)c->cc_minor;
    return CUDA_SUCCESS;
}

static int driver_compute_mode(unsigned nvml)
{
    return (int)nvml; /* 0 default, 2 prohibited, 3 exclusive process: alike in both */
}

/* CUdevice_attribute numbers; unknown ones up to the last known are 0, beyond it refused. */
static bool attribute(const struct device *d, int number, int *value)
{
    const struct machine_card *c = card_at(d->card);
    switch (number) {
    case 1: *value = 1024; break;                    /* max threads per block */
    case 2: case 3: *value = 1024; break;            /* max block x, y */
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;              /* max grid x */
    case 6: case 7: *value = 65535; break;
    case 8: *value = (int)c->shared_per_block; break;
    case 9: *value = 65536; break;                   /* constant memory */
    case 10: *value = (int)c->warp_size; break;
    case 11: *value = 2147483647; break;             /* max pitch */
    case 12: *value = (int)(c->regs_per_sm); break;
    case 13: *value = (int)c->clock_sm_max_mhz * 1000; break;
    case 14: *value = 512; break;                    /* texture alignment */
    case 15: case 31: *value = 1; break;             /* overlap, concurrent kernels */
    case 16: *value = (int)d->sm_count; break;
    case 17: *value = 0; break;                      /* kernel timeout */
    case 18: *value = 0; break;                      /* integrated */
    case 19: *value = 1; break;                      /* can map host memory */
    case 20: *value = driver_compute_mode(RELAXED(&c->compute_mode)); break;
    case 30: *value = 512; break;                    /* surface alignment */
    case 32: *value = (int)RELAXED(&c->ecc_mode); break;
    case 33: *value = (int)c->pci_bus; break;
    case 34: *value = (int)c->pci_device; break;
    case 36: *value = (int)c->clock_mem_max_mhz * 1000; break;
    case 37: *value = (int)c->memory_bus_bits; break;
    case 38: *value = (int)c->l2_bytes; break;
    case 39: *value = (int)c->threads_per_sm; break;
    case 40: *value = 3; break;                      /* copy engines */
    case 41: *value = 1; break;                      /* unified addressing */
    case 50: *value = (int)c->pci_domain; break;
    case 75: *value = (int)c->cc_major; break;
    case 76: *value = (int)c->cc_minor; break;
    case 78: *value = 1; break;                      /* stream priorities */
    case 79: case 80: *value = 1; break;
    case 81: *value = (int)c->shared_per_sm; break;
    case 82: *value = (int)c->regs_per_sm; break;
    case 83: *value = c->managed_capable != 0; break;
    case 84: *value = 0; break;                      /* multi-GPU board */
    case 86: *value = c->link_count > 0; break;
    case 87: *value = c->cc_major >= 7 && c->cc_minor == 0 ? 2 : 32;  break; /* single to double ratio */
    case 88: *value = 0; break;                      /* pageable memory access */
    case 89: *value = c->managed_capable == 1; break;/* concurrent managed access */
    case 90: *value = 1; break;                      /* compute preemption */
    case 91: *value = 1; break;                      /* host pointer for registered memory */
    case 95: *value = c->cc_major >= 6; break;       /* cooperative launch */
    case 97: *value = (int)c->shared_per_sm - 1024; break; /* opt-in shared memory of a block */
    case 102: *value = (int)c->vmm_capable; break;
    case 103: *value = (int)c->vmm_capable; break;   /* posix descriptors */
    case 106: *value = 32; break;                    /* blocks of an SM */
    case 111: *value = 1024; break;                  /* reserved shared memory of a block */
    case 115: *value = (int)c->pool_capable; break;
    case 119: *value = c->pool_capable ? 1 : 0; break; /* pool handle types */
    case 120: *value = c->cc_major >= 9; break;      /* clusters of blocks */
    case 125: *value = (int)c->ipc_capable; break;   /* events of other processes */
    case 127: *value = c->cc_major >= 9; break;      /* tensor maps */
    case 132: *value = multicast_device((int)(d - cu.devices)); break;
    case 134: *value = 1; break;                     /* host numa */
    case 142: case 144: *value = (int)c->pool_capable; break; /* pools on the host, by its NUMA nodes too */
    default:
        *value = 0;
        return number > 0 && number < 152;
    }
    return true;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int number, CUdevice device)
{
    DEVICE(cuDeviceGetAttribute, device);
    int found;
    if (!value || !attribute(&cu.devices[device], number, &found))
        return CUDA_ERROR_INVALID_VALUE;
    *value = found;
    return CUDA_SUCCESS;
}

struct properties {
    int maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], sharedMemPerBlock, totalConstantMemory, SIMDWidth, memPitch,
        regsPerBlock, clockRate, textureAlign;
};

EXPORT CUresult cuDeviceGetProperties(struct properties *out, CUdevice device)
{
    DEVICE(cuDeviceGetProperties, device);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = (struct properties){1024, {1024, 1024, 64}, {2147483647, 65535, 65535}, (int)c->shared_per_block, 65536,
                               (int)c->warp_size, 2147483647, (int)c->regs_per_sm, (int)c->clock_sm_max_mhz * 1000, 512};
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    DEVICE(cuDeviceGetPCIBusId, device);
    if (!text || length < 13)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(text, (size_t)length, "%04X:%02X:%02X.0", c->pci_domain, c->pci_bus, c->pci_device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text)
{
    ENTER(cuDeviceGetByPCIBusId);
    unsigned domain = 0, bus, dev, function = 0;
    if (!device || !text)
        return CUDA_ERROR_INVALID_VALUE;
    if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &dev, &function) < 3) {
        domain = 0;
        if (sscanf(text, "%x:%x.%x", &bus, &dev, &function) < 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    for (int i = 0; i < cu.device_count; i++) {
        const struct machine_card *c = card_at(cu.devices[i].card);
        if (c->pci_domain == domain && c->pci_bus == bus && c->pci_device == dev) {
            *device = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, int format, unsigned channels, CUdevice device)
{
    DEVICE(cuDeviceGetTexture1DLinearMaxWidth, device);
    if (!width || format <= 0 || channels < 1 || channels > 4)
        return CUDA_ERROR_INVALID_VALUE;
    *width = 1u << 28;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetExecAffinitySupport(int *supported, int type, CUdevice device)
{
    DEVICE(cuDeviceGetExecAffinitySupport, device);
    if (!supported || type != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *supported = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    ENTER(cuFlushGPUDirectRDMAWrites);
    return target == 0 && (scope == 100 || scope == 200) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
