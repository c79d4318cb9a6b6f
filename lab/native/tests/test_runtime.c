/* The CUDA runtime: one source for CUDA 11, 12 and 13, of which this is compiled against each (RUNTIME). */
#include "check.h"

#include <pthread.h>

#define MIB (1ull << 20)
#define STREAM_OF_THREAD ((void *)2)

typedef struct { unsigned x, y, z; } dim3;
struct pointer { int type, device; void *on_device, *on_host; long reserved[8]; };
struct function_attributes { size_t shared, constants, local; int threads, registers, rest[27]; };
struct config { dim3 grid, block; size_t shared; void *stream, *attributes; unsigned count; };
struct kernel_node { const void *function; dim3 grid, block; unsigned shared; void **arguments, **extra; };

int cudaDriverGetVersion(int *);
int cudaRuntimeGetVersion(int *);
int cudaGetDeviceCount(int *);
int cudaSetDevice(int);
int cudaGetDevice(int *);
int cudaDeviceReset(void);
int cudaDeviceSynchronize(void);
int cudaDeviceEnablePeerAccess(int, unsigned);
int cudaGetLastError(void);
int cudaPeekAtLastError(void);
const char *cudaGetErrorName(int);
const char *cudaGetErrorString(int);
int cudaMalloc(void **, size_t);
int cudaMallocPitch(void **, size_t *, size_t, size_t);
int cudaFree(void *);
int cudaMallocHost(void **, size_t);
int cudaFreeHost(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMallocAsync(void **, size_t, void *);
int cudaFreeAsync(void *, void *);
int cudaMemGetInfo(size_t *, size_t *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int cudaMemcpyAsync_ptsz(void *, const void *, size_t, int, void *);
int cudaMemcpyPeerAsync(void *, int, const void *, int, size_t, void *);
int cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int cudaMemset(void *, int, size_t);
int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
int cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
int cudaGetSymbolSize(size_t *, const void *);
int cudaPointerGetAttributes(struct pointer *, const void *);
int cudaStreamCreate(void **);
int cudaStreamDestroy(void *);
int cudaStreamQuery(void *);
int cudaStreamSynchronize(void *);
int cudaStreamBeginCapture(void *, int);
int cudaStreamEndCapture(void *, void **);
int cudaStreamWaitEvent(void *, void *, unsigned);
int cudaEventCreate(void **);
int cudaEventRecord(void *, void *);
int cudaEventSynchronize(void *);
int cudaEventElapsedTime(float *, void *, void *);
int cudaGraphCreate(void **, unsigned);
int cudaGraphAddKernelNode(void **, void *, void *const *, size_t, const struct kernel_node *);
int cudaGraphAddMemcpyNode1D(void **, void *, void *const *, size_t, void *, const void *, size_t, int);
#if RUNTIME == 11
int cudaGraphInstantiate(void **, void *, void **, char *, size_t);
int cudaGraphExecUpdate(void *, void *, void **, int *);
int cudaGetDriverEntryPoint(const char *, void **, unsigned long long);
#define INSTANTIATE(exec, graph) cudaGraphInstantiate(exec, graph, &node, log_text, sizeof log_text)
#else
int cudaGraphInstantiate(void **, void *, unsigned long long);
#define INSTANTIATE(exec, graph) cudaGraphInstantiate(exec, graph, 0)
#endif
int cudaGetDeviceProperties(void *, int);
int cudaGraphLaunch(void *, void *);
int cudaGraphExecDestroy(void *);
int cudaGraphDestroy(void *);
int cudaFuncGetAttributes(struct function_attributes *, const void *);
int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
int cudaLaunchKernelExC(const struct config *, const void *, void **);
int cudaGetDriverEntryPointByVersion(const char *, void **, unsigned, unsigned long long, int *);
int cudaCreateTextureObject(void *, void *, void *, void *);
int cudaGetExportTable(const void **, const void *);
void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaUnregisterFatBinary(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int);
char __cudaInitModule(void **);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
int __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);

/* What nvcc makes of a source with one kernel and one variable: a wrapper around a fat binary with PTX in it. */
#define TEXT ".version 7.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .b8 table[64];\n" \
             ".visible .global .attribute(.managed) .align 8 .b8 common[8];\n" \
             ".visible .entry doubled(.param .u64 a, .param .u32 n) { ret; }\n"
static struct __attribute__((aligned(8))) {
    unsigned magic; unsigned short version, head; unsigned long long bytes;
    struct {
        unsigned short kind, unnamed; unsigned head; unsigned long long bytes; unsigned packed, more; unsigned short minor, major;
        unsigned arch, name_at, name_bytes; unsigned long long flags, unknown;
    } part;
    char text[sizeof TEXT];
} fat = {0xba55ed50u, 1, 16, sizeof fat.part + sizeof TEXT, {1, 0x101, sizeof fat.part, sizeof TEXT, 0, 0, 0, 7, 50, 0, 0, 0, 0}, TEXT};
static struct { int magic, version; const void *data; void *more; } wrapper = {0x466243b1, 1, &fat, NULL};
static char stub, other_stub, shadow[64];
static void *managed;

static void **registered(void)
{
    void **binary = __cudaRegisterFatBinary(&wrapper);
    __cudaRegisterFunction(binary, &stub, "doubled", "doubled", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterFunction(binary, &other_stub, "missing", "missing", -1, NULL, NULL, NULL, NULL, NULL);
    __cudaRegisterVar(binary, shadow, "table", "table", 0, sizeof shadow, 0, 0);
    __cudaRegisterManagedVar(binary, &managed, "common", "common", 0, 8, 0, 0);
    __cudaRegisterFatBinaryEnd(binary);
    return binary;
}

static void the_first_call_makes_a_context_and_the_last_error_is_told_once(void)
{
    fresh_machine("cuda=13000 memory_mib=8192 context_mib=300");
    int version, count, device;
    size_t left, total, pitch;
    void *p = &p, *q;
    OK(cudaRuntimeGetVersion(&version));
    EQUAL(version / 1000, RUNTIME);
    OK(cudaDriverGetVersion(&version));
    CHECK(version >= 12000);
    OK(cudaGetDeviceCount(&count));
    EQUAL(count, 1);
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    OK(cudaMemGetInfo(&left, &total));
    EQUAL(left, 7892 * MIB);
    OK(cudaMalloc(&p, 0));
    CHECK(p == NULL);
    OK(cudaFree(NULL));
    OK(cudaMallocPitch(&p, &pitch, 0, 5));
    CHECK(p == NULL);
    EQUAL(cudaMallocPitch(&p, &pitch, 1ul << 32, 1ul << 32), 2); /* as bytes they are none, modulo 2^64 */
    OK(cudaMalloc(&p, 7000 * MIB));
    EQUAL(cudaMalloc(&q, 1000 * MIB), 2);
    EQUAL(cudaSetDevice(1), 101);
    EQUAL(cudaPeekAtLastError(), 101);
    EQUAL(cudaGetLastError(), 101);
    EQUAL(cudaGetLastError(), 0);
    CHECK(strcmp(cudaGetErrorName(2), "cudaErrorMemoryAllocation") == 0);
    CHECK(strcmp(cudaGetErrorString(2), "out of memory") == 0);
    CHECK(strcmp(cudaGetErrorString(98), "invalid device function") == 0);
    EQUAL(cudaCreateTextureObject(NULL, NULL, NULL, NULL), 801);
    EQUAL(cudaGetExportTable(NULL, NULL), 801);
    OK(cudaGetDevice(&device));
    EQUAL(device, 0);
    OK(cudaDeviceReset());
    OK(cudaMemGetInfo(&left, &total));
    EQUAL(left, 7892 * MIB);
    EQUAL(cudaFree(p), 1);
    drop_machine();
}

static void *another_thread(void *arg)
{
    int device;
    size_t left, total;
    (void)arg;
    EQUAL(cudaPeekAtLastError(), 0);
    OK(cudaGetDevice(&device));
    EQUAL(device, 0);
    OK(cudaMemGetInfo(&left, &total));
    return NULL;
}

static void every_thread_has_its_device_and_its_error(void)
{
    fresh_machine("cuda=13000 cards=2 memory_mib=8192 context_mib=300");
    int device;
    void *p, *q;
    struct pointer about;
    pthread_t thread;
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&p, 4 * MIB));
    OK(cudaPointerGetAttributes(&about, p));
    EQUAL(about.type, 2);
    EQUAL(about.device, 1);
    EQUAL(cudaSetDevice(7), 101);
    pthread_create(&thread, NULL, another_thread, NULL);
    pthread_join(thread, NULL);
    EQUAL(cudaGetLastError(), 101);
    OK(cudaGetDevice(&device));
    EQUAL(device, 1);
    CUcontext own;
    OK(cuCtxCreate_v2(&own, 0, 0)); /* the program's own context comes first */
    OK(cudaGetDevice(&device));
    EQUAL(device, 0);
    OK(cudaMalloc(&q, 4 * MIB));
    OK(cudaPointerGetAttributes(&about, q));
    EQUAL(about.device, 0);
    OK(cudaMemcpyPeerAsync(q, 0, p, 1, 4 * MIB, NULL));
    OK(cudaPointerGetAttributes(&about, &device));
    EQUAL(about.type, 0);
    drop_machine();
}

static void copies_move_bytes_in_every_direction(void)
{
    fresh_machine("cuda=13000 memory_mib=8192 context_mib=300");
    char in[64] = "by the runtime", out[64] = "";
    void *p, *q, *host, *managed, *stream;
    struct pointer about;
    OK(cudaMalloc(&p, 1000));
    OK(cudaMallocAsync(&q, 1000, NULL));
    OK(cudaMallocHost(&host, 1000));
    OK(cudaMallocManaged(&managed, 1000, 1));
    OK(cudaStreamCreate(&stream));
    OK(cudaMemcpy(p, in, 64, 1));
    OK(cudaMemcpyAsync(q, p, 64, 3, stream));
    OK(cudaMemcpyAsync_ptsz(host, q, 64, 2, NULL));
    OK(cudaStreamSynchronize(STREAM_OF_THREAD));
    OK(cudaMemcpy(managed, host, 64, 4));
    OK(cudaMemcpy(out, managed, 64, 0));
    CHECK(strcmp(in, out) == 0);
    EQUAL(cudaMemcpy(out, p, 64, 5), 21);
    OK(cudaMemset(p, 'x', 8));
    OK(cudaMemcpy2D(out, 4, p, 8, 4, 2, 2));
    CHECK(memcmp(out, "xxxxuntime", 4) == 0);
    EQUAL(cudaMemcpy2D(out, 2, p, 8, 4, 2, 2), 12);
    OK(cudaPointerGetAttributes(&about, managed));
    EQUAL(about.type, 3);
    OK(cudaPointerGetAttributes(&about, host));
    EQUAL(about.type, 1);
    OK(cudaFreeAsync(q, stream));
    OK(cudaStreamDestroy(stream));
    OK(cudaFreeHost(host));
    OK(cudaFree(managed));
    drop_machine();
}

static void kernels_are_loaded_when_they_are_asked_for(void)
{
    fresh_machine("cuda=13000 memory_mib=8192 context_mib=300");
    void **binary = registered(), *at = NULL, *arguments[] = {&at, &(unsigned){0}}, *stream, *begun, *ended;
    struct function_attributes about;
    dim3 grid = {4, 1, 1}, block = {256, 1, 1}, seen, seen_too;
    int blocks;
    size_t bytes;
    float ms;
    OK(cudaEventCreate(&begun));
    OK(cudaEventCreate(&ended));
    OK(cudaEventRecord(begun, NULL));
    OK(cudaLaunchKernel(&stub, grid, block, arguments, 0, NULL));
    OK(cudaLaunchKernelExC(&(struct config){.grid = grid, .block = block}, &stub, arguments));
    OK(cudaEventRecord(ended, NULL));
    OK(cudaEventSynchronize(ended));
    OK(cudaEventElapsedTime(&ms, begun, ended));
    CHECK(ms > 0);
    memset(&about, 0xee, sizeof about);
    OK(cudaFuncGetAttributes(&about, &stub));
    EQUAL(about.threads, 1024);
    EQUAL(about.rest[6] == (int)0xeeeeeeee, RUNTIME == 11); /* what CUDA 12 added is not there to be written to */
    EQUAL(about.rest[4] == (int)0xeeeeeeee, 0);
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, &stub, 256, 0));
    CHECK(blocks > 0);
    EQUAL(cudaLaunchKernel(&other_stub, grid, block, arguments, 0, NULL), 98);
    EQUAL(cudaLaunchKernel(&ms, grid, block, arguments, 0, NULL), 98);
    char in[64] = "a table", out[64];
    OK(cudaGetSymbolSize(&bytes, shadow));
    EQUAL(bytes, 64);
    OK(cudaMemcpyToSymbol(shadow, in, 60, 4, 1));
    OK(cudaMemcpyFromSymbol(out, shadow, 60, 4, 2));
    CHECK(strcmp(in, out) == 0);
    EQUAL(cudaMemcpyToSymbol(shadow, in, 64, 4, 1), 1);
    EQUAL(cudaGetSymbolSize(&bytes, &stub), 13);
    CHECK(__cudaInitModule(binary) && managed);
    strcpy(managed, "both");
    OK(cudaMemcpy(out, managed, 5, 4));
    CHECK(strcmp(out, "both") == 0);
    OK(__cudaPushCallConfiguration(grid, block, 128, STREAM_OF_THREAD));
    OK(__cudaPopCallConfiguration(&seen, &seen_too, &bytes, &stream));
    CHECK(seen.x == 4 && seen_too.x == 256 && bytes == 128 && stream == STREAM_OF_THREAD);
    EQUAL(__cudaPopCallConfiguration(&seen, &seen_too, &bytes, &stream), 52);
    __cudaUnregisterFatBinary(binary);
    EQUAL(cudaLaunchKernel(&stub, grid, block, arguments, 0, NULL), 98);
    drop_machine();
}

static void graphs_are_captured_and_made(void)
{
    fresh_machine("cuda=13000 memory_mib=8192 context_mib=300");
    registered();
    void *stream, *graph, *exec, *node, *p, *at = NULL, *arguments[] = {&at, &(unsigned){0}};
    dim3 grid = {4, 1, 1}, block = {256, 1, 1};
    char out[16] = "";
    OK(cudaMalloc(&p, 16));
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, 0));
    OK(cudaLaunchKernel(&stub, grid, block, arguments, 0, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphAddKernelNode(&node, graph, NULL, 0, &(struct kernel_node){&stub, grid, block, 0, arguments, NULL}));
    OK(cudaGraphAddMemcpyNode1D(&node, graph, &node, 1, p, "from the graph", 15, 1));
#if RUNTIME == 11
    char log_text[100] = "what was there before";
    int result = -1;
#endif
    OK(INSTANTIATE(&exec, graph));
#if RUNTIME == 11
    CHECK(log_text[0] == 0);
    OK(cudaGraphExecUpdate(exec, graph, &node, &result));
    EQUAL(result, 0);
#endif
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemcpy(out, p, 15, 2));
    CHECK(strcmp(out, "from the graph") == 0);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    drop_machine();
}

/* Of CUDA 11: 728 bytes, to which CUDA 12 gave another name with what it added, and CUDA 13 another layout under the old name. */
static void the_properties_of_a_device_are_as_long_as_the_caller_knows_them(void)
{
    fresh_machine("cuda=13000 memory_mib=8192");
    enum { LENGTH = RUNTIME < 13 ? 728 : 1008 };
    unsigned char told[LENGTH + 8];
    size_t total;
    memset(told, 0xee, sizeof told);
    OK(cudaGetDeviceProperties(told, 0));
    memcpy(&total, told + 288, sizeof total);
    EQUAL(total, 8192 * MIB);
    EQUAL(told[LENGTH], 0xee);
    CHECK(told[LENGTH - 8] != 0xee || told[LENGTH - 7] != 0xee);
    drop_machine();
}

static void the_drivers_own_functions_are_handed_out(void)
{
    fresh_machine("cuda=13000 memory_mib=8192");
    int (*count_of)(int *), count = 0, status;
    void *none;
#if RUNTIME == 11
    OK(cudaGetDriverEntryPoint("cuDeviceGetCount", (void **)&count_of, 0));
    EQUAL(cudaGetDriverEntryPoint("cuNothing", &none, 0), 500);
#endif
    OK(cudaGetDriverEntryPointByVersion("cuDeviceGetCount", (void **)&count_of, 12000, 0, &status));
    EQUAL(status, 0);
    OK(count_of(&count));
    EQUAL(count, 1);
    OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &none, 12000, 0, &status));
    EQUAL(status, 1);
    drop_machine();
}

#if RUNTIME == 13
typedef struct { int type; unsigned char internal[92]; unsigned processors, rest[11]; } Resource;
int cudaDeviceGetDevResource(int, Resource *, int);
int cudaDevSmResourceSplitByCount(Resource *, unsigned *, const Resource *, Resource *, unsigned, unsigned);
int cudaDevResourceGenerateDesc(void **, Resource *, unsigned);
int cudaGreenCtxCreate(void **, void *, int, unsigned);
int cudaDeviceGetExecutionCtx(void **, int);
int cudaExecutionCtxDestroy(void *);
int cudaExecutionCtxStreamCreate(void **, void *, unsigned, int);
int cudaExecutionCtxGetDevResource(void *, Resource *, int);
int cudaExecutionCtxGetDevice(int *, void *);
int cudaExecutionCtxGetId(void *, unsigned long long *);
int cudaExecutionCtxSynchronize(void *);
int cudaExecutionCtxRecordEvent(void *, void *);
int cudaExecutionCtxWaitEvent(void *, void *);

static void execution_contexts_are_the_device_or_a_part_of_it(void)
{
    fresh_machine("cuda=13010 cards=2 memory_mib=8192");
    Resource all, parts[2], told;
    void *described, *green, *whole, *stream, *plain, *event;
    unsigned count = 2;
    OK(cudaSetDevice(1));
    OK(cudaDeviceGetDevResource(1, &all, 1));
    EQUAL(all.processors, 108);
    OK(cudaDevSmResourceSplitByCount(parts, &count, &all, NULL, 0, 40));
    OK(cudaDevResourceGenerateDesc(&described, &parts[1], 1));
    EQUAL(cudaGreenCtxCreate(&green, described, 1, 1), 1);
    OK(cudaGreenCtxCreate(&green, described, 1, 0));
    OK(cudaDeviceGetExecutionCtx(&whole, 1));
    OK(cudaExecutionCtxGetDevResource(green, &told, 1));
    EQUAL(told.processors, 40);
    OK(cudaExecutionCtxGetDevResource(whole, &told, 1));
    EQUAL(told.processors, 108);
    OK(cudaSetDevice(0));
    OK(cudaExecutionCtxStreamCreate(&stream, green, 0, 0));
    OK(cudaExecutionCtxStreamCreate(&plain, whole, 1, 0));
    int devices[3];
    OK(cudaExecutionCtxGetDevice(&devices[0], green));
    OK(cudaExecutionCtxGetDevice(&devices[1], whole));
    OK(cudaGetDevice(&devices[2]));
    CHECK(devices[0] == 1 && devices[1] == 1 && devices[2] == 0);
    unsigned long long one, other;
    OK(cudaExecutionCtxGetId(green, &one));
    OK(cudaExecutionCtxGetId(whole, &other));
    OK(cudaSetDevice(1));
    OK(cudaEventCreate(&event));
    OK(cudaExecutionCtxRecordEvent(green, event));
    OK(cudaExecutionCtxWaitEvent(whole, event));
    OK(cudaExecutionCtxSynchronize(green));
    OK(cudaExecutionCtxSynchronize(whole));
    OK(cudaExecutionCtxDestroy(green));
    EQUAL(cudaStreamQuery(stream), 917);
    OK(cudaStreamQuery(plain));
    EQUAL(cudaExecutionCtxDestroy(whole), 201); /* it ends with the device's reset */
    drop_machine();
}
#endif

int main(void)
{
    apart(the_first_call_makes_a_context_and_the_last_error_is_told_once);
    apart(every_thread_has_its_device_and_its_error);
    apart(copies_move_bytes_in_every_direction);
    apart(kernels_are_loaded_when_they_are_asked_for);
    apart(graphs_are_captured_and_made);
    apart(the_drivers_own_functions_are_handed_out);
    apart(the_properties_of_a_device_are_as_long_as_the_caller_knows_them);
#if RUNTIME == 13
    apart(execution_contexts_are_the_device_or_a_part_of_it);
#endif
    return 0;
}
