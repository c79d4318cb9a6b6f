/*
 * As much of the driver's and NVML's binary interface as the library touches, written from their public documentation.
 * Handles are opaque; structures have the layout that every 64-bit driver since their introduction reads.
 */
#ifndef VGPU_ABI_H
#define VGPU_ABI_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemHandle;
typedef struct cuda_context *CUcontext;
typedef struct cuda_stream *CUstream;
typedef struct cuda_event *CUevent;
typedef struct cuda_function *CUfunction;
typedef struct cuda_array *CUarray;
typedef struct cuda_mipmapped_array *CUmipmappedArray;
typedef struct cuda_pool *CUmemPool;
typedef struct cuda_green *CUgreenCtx;
typedef struct cuda_external *CUexternalMemory;
typedef struct cuda_graph *CUgraph;
typedef struct cuda_graph_node *CUgraphNode;
typedef struct cuda_graph_exec *CUgraphExec;

enum {
    CUDA_SUCCESS = 0, CUDA_ERROR_OUT_OF_MEMORY = 2, CUDA_ERROR_NOT_READY = 600, CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_SUPPORTED = 801,
};

struct cuda_uuid {
    unsigned char bytes[16];
};

struct array_descriptor_v1 {
    unsigned width, height;
    int format;
    unsigned channels;
};

struct array_descriptor {
    size_t width, height;
    int format;
    unsigned channels;
};

struct array3d_descriptor_v1 {
    unsigned width, height, depth;
    int format;
    unsigned channels, flags;
};

struct array3d_descriptor {
    size_t width, height, depth;
    int format;
    unsigned channels, flags;
};

enum { ARRAY_LAYERED = 0x01, ARRAY_CUBEMAP = 0x04, ARRAY_SPARSE = 0x40, ARRAY_DEFERRED = 0x80 };

enum { LOCATION_NONE = 0, LOCATION_DEVICE = 1, LOCATION_PART_OF_DEVICE = 6 };
enum { ALLOCATION_MANAGED = 2 };

/* CUipcMemHandle, CUmemPoolPtrExportData, CUmemFabricHandle: bytes that are passed on. */
struct ipc_handle {
    unsigned char bytes[64];
};

enum { HANDLE_TYPE_DESCRIPTOR = 1, HANDLE_TYPE_FABRIC = 8, POINTER_IS_MANAGED = 8, POINTER_DEVICE_ORDINAL = 9 };

struct mem_location {
    int type, id;
};

/* CUDA_EXTERNAL_MEMORY_HANDLE_DESC, CUarrayMapInfo and CUcheckpointRestoreArgs, as far as they are read here. */
struct external_memory {
    int type;
    uint64_t handle[2];
    unsigned long long size;
    unsigned flags, reserved[16];
};

enum { OPERATION_MAP = 1 };

struct array_mapping {
    int resource_type;
    void *resource;
    int subresource_type;
    uint64_t subresource[4];
    int operation, handle_type;
    CUmemHandle handle;
    unsigned long long offset;
    unsigned device_mask, flags, reserved[2];
};

struct restore_args {
    const void *pairs;
    unsigned pair_count;
};

struct mem_prop {
    int type, handle_types;
    struct mem_location location;
    void *win32;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};

struct pool_props {
    int type, handle_types;
    struct mem_location location;
    void *security;
    size_t max_size;
    unsigned short usage;
    unsigned char reserved[54];
};

enum { POOL_RESERVED_CURRENT = 5, POOL_USED_CURRENT = 7, GRAPH_RESERVED_CURRENT = 2 };
enum { GRAPH_NODE_CHILD = 4, GRAPH_NODE_MEM_ALLOC = 10 };

struct mem_alloc_node {
    struct pool_props pool;
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr pointer;
};

struct launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
};

struct launch_params {
    CUfunction function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CUstream stream;
    void **parameters;
};

enum {
    DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16, DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR = 39,
    DEVICE_ATTRIBUTE_CAPABILITY_MAJOR = 75, DEVICE_ATTRIBUTE_CAPABILITY_MINOR = 76, DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS = 89,
};
enum { ADVISE_PREFERRED_LOCATION = 3, MANAGED_ATTACH_GLOBAL = 1 };
enum { CAPTURE_MODE_RELAXED = 2 };

/* ---- NVML ---- */

typedef int nvmlReturn;
typedef struct nvml_device *nvmlDevice;

enum { NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_FUNCTION_NOT_FOUND = 13 };

struct nvml_memory {
    uint64_t total, free, used;
};

#define NVML_MEMORY_V2 0x02000028u /* its size and version */

struct nvml_memory_v2 {
    uint32_t version;
    uint64_t total, reserved, free, used;
};

struct nvml_pci {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct nvml_process_v1 {
    unsigned pid;
    uint64_t bytes;
};

struct nvml_process {
    unsigned pid;
    uint64_t bytes;
    unsigned gpu_instance, compute_instance;
};

_Static_assert(sizeof(struct external_memory) == 104, "ABI of CUDA_EXTERNAL_MEMORY_HANDLE_DESC");
_Static_assert(sizeof(struct array_mapping) == 96, "ABI of CUarrayMapInfo");
_Static_assert(sizeof(struct ipc_handle) == 64, "ABI of CUipcMemHandle");
_Static_assert(sizeof(struct mem_prop) == 32, "ABI of CUmemAllocationProp");
_Static_assert(sizeof(struct pool_props) == 88, "ABI of CUmemPoolProps");
_Static_assert(sizeof(struct mem_alloc_node) == 120, "ABI of CUDA_MEM_ALLOC_NODE_PARAMS");
_Static_assert(sizeof(struct launch_config) == 56, "ABI of CUlaunchConfig");
_Static_assert(sizeof(struct array3d_descriptor) == 40, "ABI of CUDA_ARRAY3D_DESCRIPTOR");
_Static_assert(sizeof(struct nvml_memory_v2) == 40, "ABI of nvmlMemory_v2_t");
_Static_assert(sizeof(struct nvml_pci) == 68, "ABI of nvmlPciInfo_t");
_Static_assert(sizeof(struct nvml_process) == 24, "ABI of nvmlProcessInfo_v2_t");

#endif
