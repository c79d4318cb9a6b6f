/* The inside of libcudart.so: a CUDA runtime of our own over the public driver API of whatever libcuda.so.1 is there. It is not NVIDIA's and
 * does not pass for it (docs/adr/0092). One source for the runtimes of CUDA 11, 12 and 13: RUNTIME says which is built. Types, numbers and
 * layouts are those of cuda_runtime_api.h and driver_types.h of the package nvidia-cuda-runtime 11.7, 12.9 and 13.2. */
#ifndef PUMICE_MACHINE_RUNTIME_H
#define PUMICE_MACHINE_RUNTIME_H

#include "../cuda/cuda_api.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define RUNTIME_VERSION (RUNTIME == 11 ? 11080 : RUNTIME == 12 ? 12090 : 13020)

/* The numbers of the driver's errors are the runtime's; these are its own. */
enum {
    cudaErrorInvalidPitchValue = 12,
    cudaErrorInvalidSymbol = 13,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorCallRequiresNewerDriver = 36,
    cudaErrorMissingConfiguration = 52,
    cudaErrorInvalidDeviceFunction = 98,
};

typedef unsigned long word;
typedef struct { unsigned int x, y, z; } dim3;

/* ---- driver.c: the driver's functions, each looked up at its first use by cuGetProcAddress of libcuda.so.1 ---- */
enum driver_row {
#define PLAIN(n, name, driver, version) F_##name,
#define CALL(n, name, driver, version) F_##name,
#define STREAM(n, name, driver, version) F_##name,
#define DRIVER(name, version, parameters) D_##name,
#define REFUSED(name)
#include "calls.def"
    DRIVER_ROWS
};
int driver_ready(void);                          /* 0, or why there is none */
void *driver_function(enum driver_row row, bool per_thread); /* where the driver lacks it, one that says so */
#undef PLAIN
#undef CALL
#undef STREAM
#undef DRIVER
#define PLAIN(n, name, driver, version)
#define CALL(n, name, driver, version)
#define STREAM(n, name, driver, version)
#define DRIVER(name, version, parameters) typedef int driver_##name parameters;
#include "calls.def"
#undef PLAIN
#undef CALL
#undef STREAM
#undef DRIVER
#undef REFUSED
#define THE(name) ((driver_##name *)driver_function(D_##name, false))
#define THE_OWN(name, per_thread) ((driver_##name *)driver_function(D_##name, per_thread))

/* ---- device.c: the device of a thread, its context, its last error ---- */
int in_context(void);                      /* sees to a context of this thread; 0 or an error */
int primary_of(int device, CUcontext *out); /* the device's primary context, taken at the first time */
int settle(int error);                     /* what every call returns through: keeps an error for cudaGetLastError */

/* ---- code.c: kernels and variables of the programs' fat binaries, loaded at first use ---- */
int kernel_of(const void *function, CUkernel *out);
int variable_of(const void *symbol, CUdeviceptr *address, size_t *bytes);

/* ---- copy.c ---- */
typedef struct { void *ptr; size_t pitch, xsize, ysize; } pitched; /* cudaPitchedPtr */
typedef struct { size_t width, height, depth; } extent;            /* cudaExtent, cudaPos */
struct box {                                                       /* cudaMemcpy3DParms */
    CUarray from_array;
    extent from_at;
    pitched from;
    CUarray to_array;
    extent to_at;
    pitched to;
    extent size;
    int kind;
};
int box_copy(const struct box *box, CUDA_MEMCPY3D *out); /* as the driver takes it */

#endif
