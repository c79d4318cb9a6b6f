/* Linked against the driver, as programs are that name it at build time. Prints total memory by CUDA and by NVML. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemGetInfo_v2(size_t *, size_t *);
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned, void **);
int nvmlDeviceGetMemoryInfo(void *, uint64_t *);

int main(void)
{
    void *context, *device;
    size_t available, total;
    uint64_t memory[3];
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemGetInfo_v2(&available, &total) ||
        nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &device) || nvmlDeviceGetMemoryInfo(device, memory))
        return 1;
    printf("[%zu, %lu]\n", total, (unsigned long)memory[0]);
    return 0;
}
