/* Beginning, end, versions and texts of the library. */
#define _GNU_SOURCE
#include "nvml.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static _Atomic unsigned references;

bool nvml_ready(void)
{
    return atomic_load_explicit(&references, memory_order_acquire) > 0 && the_machine;
}

/* Without this the pointers of one machine would be read from another after PUMICE_MACHINE changed. */
static nvmlReturn_t begin(const char *function)
{
    pthread_mutex_lock(&counting);
    nvmlReturn_t rc = NVML_SUCCESS;
    if (atomic_load(&references) == 0 && !machine_attach_again())
        rc = NVML_ERROR_DRIVER_NOT_LOADED;
    if (rc == NVML_SUCCESS)
        rc = fault_check(function);
    if (rc == NVML_SUCCESS)
        atomic_fetch_add(&references, 1);
    pthread_mutex_unlock(&counting);
    return rc;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return begin("nvmlInit_v2");
}

EXPORT nvmlReturn_t nvmlInit(void)
{
    return begin("nvmlInit");
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    return flags & ~7u ? NVML_ERROR_INVALID_ARGUMENT : begin("nvmlInitWithFlags");
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    pthread_mutex_lock(&counting);
    nvmlReturn_t rc = atomic_load(&references) > 0 ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (rc == NVML_SUCCESS)
        atomic_fetch_sub(&references, 1);
    pthread_mutex_unlock(&counting);
    return rc;
}

nvmlReturn_t nvml_may_change(void)
{
    return the_machine->require_root && geteuid() != 0 ? NVML_ERROR_NO_PERMISSION : NVML_SUCCESS;
}

nvmlReturn_t nvml_text(char *out, unsigned length, const char *text)
{
    if (!out || length == 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    size_t n = strlen(text);
    if (n >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(out, text, n + 1);
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized",
        "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded", "Timeout",
        "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found", "Corrupted infoROM", "GPU is lost",
        "GPU requires reset", "The operating system has blocked the request.", "RM has detected an NVML/RM version mismatch.",
        "In use by another client", "Insufficient Memory", "No data", "vGPU ECC not supported", "Insufficient Resources",
        "Frequency Not Supported", "Argument version mismatch", "Deprecated", "Not Ready", "GPU not found", "Invalid state",
        "The version of the reset type is not supported"};
    if (code >= 0 && code < (int)(sizeof texts / sizeof *texts))
        return texts[code];
    return code == NVML_ERROR_UNKNOWN ? "Unknown Error" : "Unrecognized error code";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER(nvmlSystemGetDriverVersion);
    return nvml_text(version, length, the_machine->driver_version);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    ENTER(nvmlSystemGetNVMLVersion);
    return nvml_text(version, length, the_machine->nvml_version);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER(nvmlSystemGetCudaDriverVersion);
    NEED(version);
    *version = (int)the_machine->cuda_version;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER(nvmlSystemGetCudaDriverVersion_v2);
    NEED(version);
    *version = (int)the_machine->cuda_version;
    return NVML_SUCCESS;
}

/* {unsigned version; char branch[80]} */
EXPORT nvmlReturn_t nvmlSystemGetDriverBranch(void *info, unsigned int length)
{
    ENTER(nvmlSystemGetDriverBranch);
    NEED(info && length >= 80);
    char branch[80] = "r";
    strncat(branch, the_machine->driver_version, strcspn(the_machine->driver_version, "."));
    strcat(branch, "_00");
    memset((char *)info + 4, 0, 80);
    strcpy((char *)info + 4, branch);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    ENTER(nvmlSystemGetProcessName);
    NEED(name && length > 0);
    char path[32], text[1024];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    if (n == 0)
        return NVML_ERROR_NOT_FOUND;
    text[n] = 0;
    return nvml_text(name, length, text);
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count)
{
    ENTER(nvmlGetExcludedDeviceCount);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, void *info)
{
    ENTER(nvmlGetExcludedDeviceInfoByIndex);
    (void)index, (void)info;
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int *count)
{
    ENTER(nvmlUnitGetCount);
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int index, nvmlUnit_t *unit)
{
    ENTER(nvmlUnitGetHandleByIndex);
    (void)index, (void)unit;
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *count, void *entries)
{
    ENTER(nvmlSystemGetHicVersion);
    (void)entries;
    NEED(count);
    *count = 0;
    return NVML_SUCCESS;
}
