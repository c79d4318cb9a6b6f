/*
 * mill PROCESSES OPERATIONS LARGEST_BYTES [PATH...]: processes that take device memory and give it back by every path that there is (or
 * by some), at random and at the limit, and pass it on to each other in a ring.
 *
 * An operation takes memory or gives it back. Every answer is a grant or out of memory, but to what another process has let go
 * meanwhile. Prints {path: [granted, refused]} of all processes together; ends with 1 where an answer was another one, and says it.
 * Who watches the card is somebody else: this program asks for no figure.
 */
#include "check.h"
#include "driver/abi.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HELD = 48, PROCESSES = 64, GRANULE = 2 << 20, MIB = 1 << 20, FIRST_OF_GREED = 16 };
enum { OPEN_READ_WRITE = 1, HEAP_SIZE = 2, FORMAT_FLOAT = 0x20 };

/* The driver as a program links it: what is hooked, what the library needs, and what else this program calls. */
static struct {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) result(*name) parameters;
#include "hooks.def"
#undef HOOK
    CUresult (*cuCtxSetCurrent)(CUcontext);
    CUresult (*cuCtxPopCurrent)(CUcontext *);
    CUresult (*cuCtxSynchronize)(void);
    CUresult (*cuMemAddressReserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*cuMemAddressFree)(CUdeviceptr, size_t);
    CUresult (*cuMemPrefetchAsync)(CUdeviceptr, size_t, CUdevice, CUstream);
    CUresult (*cuMulticastAddDevice)(CUmemHandle, CUdevice);
    CUresult (*cuDeviceGetDevResource)(CUdevice, void *, int);
    CUresult (*cuDevResourceGenerateDesc)(void **, void *, unsigned);
    CUresult (*cuCtxFromGreenCtx)(CUcontext *, CUgreenCtx);
    CUresult (*cuGraphCreate)(CUgraph *, unsigned);
    CUresult (*cuGraphDestroy)(CUgraph);
    CUresult (*cuGraphAddMemAllocNode)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, struct mem_alloc_node *);
    CUresult (*cuGraphAddMemFreeNode)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr);
} cu;

static const struct {
    const char *name;
    void *cell;
} names[] = {
#define HOOK(library, name, kind, since, result, parameters, arguments, shape) {#name, &cu.name},
#include "hooks.def"
#undef HOOK
#define ALSO(name) {#name, &cu.name}
    ALSO(cuCtxSetCurrent), ALSO(cuCtxPopCurrent), ALSO(cuCtxSynchronize), ALSO(cuMemAddressReserve), ALSO(cuMemAddressFree), ALSO(cuMemPrefetchAsync),
    ALSO(cuMulticastAddDevice), ALSO(cuDeviceGetDevResource), ALSO(cuDevResourceGenerateDesc), ALSO(cuCtxFromGreenCtx),
    ALSO(cuGraphCreate), ALSO(cuGraphDestroy), ALSO(cuGraphAddMemAllocNode), ALSO(cuGraphAddMemFreeNode),
};

static CUcontext primary;
static unsigned seed;
static size_t largest;
static int to_next = -1, from_last = -1;

static void load(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = cuda == NULL ? NULL : dlsym(cuda, names[i].name);
        memcpy(names[i].cell, &found, sizeof found);
    }
}

static unsigned dice(unsigned sides)
{
    return (unsigned)rand_r(&seed) % sides;
}

/* The edges of what a driver rounds, and anything in between. */
static size_t some_size(void)
{
    static const size_t edges[] = {1, 700, 100000, MIB, MIB + 1, GRANULE, GRANULE + 1, 33u << 20};
    unsigned lot = dice(sizeof edges / sizeof *edges + FIRST_OF_GREED);
    return lot < sizeof edges / sizeof *edges ? edges[lot] : 1 + (size_t)rand_r(&seed) % largest;
}

static size_t whole(size_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

/* ---- what one may hold, and how it is given back ------------------------------------------------------------------- */

struct held {
    const struct path *path;
    CUdeviceptr address;
    unsigned long long handle;
    void *object;
    size_t bytes;
    bool mapped, retained;
};

struct path {
    const char *name;
    CUresult (*take)(struct held *);
    CUresult (*give)(struct held *);
    bool of_others; /* it may have gone before it is opened */
};

static CUresult free_linear(struct held *held)
{
    return cu.cuMemFree_v2(held->address);
}

static CUresult linear(struct held *held)
{
    return cu.cuMemAlloc_v2(&held->address, some_size());
}

static CUresult managed(struct held *held)
{
    size_t bytes = some_size();
    CUresult rc = cu.cuMemAllocManaged(&held->address, bytes, 1);
    if (rc == CUDA_SUCCESS)
        cu.cuMemPrefetchAsync(held->address, bytes, 0, NULL);
    return rc;
}

static CUresult pitched(struct held *held)
{
    size_t pitch;
    return cu.cuMemAllocPitch_v2(&held->address, &pitch, 1 + dice(4096), 1 + some_size() / 4096, 4);
}

static CUresult array(struct held *held)
{
    struct array3d_descriptor shape = {1 + dice(1024), 1 + some_size() / 4096 % 16384, 0, FORMAT_FLOAT, 1, 0};
    return cu.cuArray3DCreate_v2((CUarray *)&held->object, &shape);
}

static CUresult array_destroy(struct held *held)
{
    return cu.cuArrayDestroy(held->object);
}

static CUresult mipmapped(struct held *held)
{
    struct array3d_descriptor shape = {256, 1 + some_size() / 1024 % 16384, 0, FORMAT_FLOAT, 1, 0};
    return cu.cuMipmappedArrayCreate((CUmipmappedArray *)&held->object, &shape, 1 + dice(6));
}

static CUresult mipmapped_destroy(struct held *held)
{
    return cu.cuMipmappedArrayDestroy(held->object);
}

static void map(struct held *held)
{
    if (cu.cuMemAddressReserve(&held->address, held->bytes, 0, 0, 0) != CUDA_SUCCESS)
        return;
    held->mapped = cu.cuMemMap(held->address, held->bytes, 0, held->handle, 0) == CUDA_SUCCESS;
    if (!held->mapped)
        cu.cuMemAddressFree(held->address, held->bytes);
}

static CUresult physical(struct held *held)
{
    struct mem_prop prop = {.type = 1, .handle_types = HANDLE_TYPE_DESCRIPTOR, .location = {LOCATION_DEVICE, 0}};
    held->bytes = whole(some_size());
    CUresult rc = cu.cuMemCreate(&held->handle, held->bytes, &prop, 0);
    if (rc == CUDA_SUCCESS && dice(2) != 0) {
        map(held);
        CUmemHandle again;
        held->retained = held->mapped && dice(4) == 0 && cu.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)held->address) == 0;
    }
    return rc;
}

/* Handle and mapping in any order. */
static CUresult let_physical_go(struct held *held)
{
    bool first = dice(2) != 0;
    CUresult rc = first ? cu.cuMemRelease(held->handle) : CUDA_SUCCESS;
    if (held->retained)
        rc |= cu.cuMemRelease(held->handle);
    if (held->mapped) {
        rc |= cu.cuMemUnmap(held->address, held->bytes);
        rc |= cu.cuMemAddressFree(held->address, held->bytes);
    }
    return first ? rc : rc | cu.cuMemRelease(held->handle);
}

/* Bound to a multicast object of this card alone, which may be all that holds it. */
static CUresult multicast(struct held *held)
{
    struct mem_prop prop = {.type = 1, .handle_types = HANDLE_TYPE_DESCRIPTOR, .location = {LOCATION_DEVICE, 0}};
    CUmemHandle team;
    held->bytes = whole(some_size());
    const struct { unsigned devices; size_t bytes; unsigned long long types, flags; } wish = {1, held->bytes, 0, 0};
    CUresult rc = cu.cuMemCreate(&held->handle, held->bytes, &prop, 0);
    if (rc != CUDA_SUCCESS)
        return rc;
    rc = cu.cuMulticastCreate(&team, &wish);
    if (rc == CUDA_SUCCESS)
        rc = cu.cuMulticastAddDevice(team, 0) | cu.cuMulticastBindMem(team, 0, held->handle, 0, held->bytes, 0);
    held->address = team;
    held->retained = dice(2) != 0;
    return held->retained ? rc : rc | cu.cuMemRelease(held->handle);
}

static CUresult end_multicast(struct held *held)
{
    CUresult rc = dice(2) != 0 ? cu.cuMulticastUnbind(held->address, 0, 0, held->bytes) : CUDA_SUCCESS;
    bool first = held->retained && dice(2) != 0;
    if (first)
        rc |= cu.cuMemRelease(held->handle);
    rc |= cu.cuMemRelease(held->address);
    return held->retained && !first ? rc | cu.cuMemRelease(held->handle) : rc;
}

static CUresult stream_ordered(struct held *held)
{
    return cu.cuMemAllocAsync(&held->address, some_size(), NULL);
}

static CUresult free_ordered(struct held *held)
{
    return dice(2) != 0 ? cu.cuMemFreeAsync(held->address, NULL) : cu.cuMemFree_v2(held->address);
}

static CUresult own_pool(struct held *held)
{
    struct pool_props props = {.type = 1, .location = {LOCATION_DEVICE, 0}};
    unsigned long long keep = dice(2) != 0 ? UINT64_MAX : 0;
    CUresult rc = cu.cuMemPoolCreate((CUmemPool *)&held->object, &props);
    if (rc != CUDA_SUCCESS)
        return rc;
    cu.cuMemPoolSetAttribute(held->object, 4, &keep);
    rc = cu.cuMemAllocFromPoolAsync(&held->address, some_size(), held->object, NULL);
    if (rc != CUDA_SUCCESS)
        cu.cuMemPoolDestroy(held->object);
    return rc;
}

static CUresult end_pool(struct held *held)
{
    CUresult rc = cu.cuMemFreeAsync(held->address, NULL);
    if (dice(2) != 0)
        rc |= cu.cuCtxSynchronize() | cu.cuMemPoolTrimTo(held->object, 0);
    return rc | cu.cuMemPoolDestroy(held->object);
}

/* A graph that allocates, and frees or leaves that to the program; launched as often as it may be. */
static CUresult graph(struct held *held)
{
    CUgraph made;
    CUgraphNode allocation, freeing;
    struct mem_alloc_node node = {.pool = {.type = 1, .location = {LOCATION_DEVICE, 0}}, .bytes = some_size()};
    bool frees = dice(2) != 0;
    CUresult rc = cu.cuGraphCreate(&made, 0);
    if (rc != CUDA_SUCCESS || (rc = cu.cuGraphAddMemAllocNode(&allocation, made, NULL, 0, &node)) != CUDA_SUCCESS)
        return rc;
    if (frees)
        cu.cuGraphAddMemFreeNode(&freeing, made, &allocation, 1, node.pointer);
    rc = cu.cuGraphInstantiateWithFlags((CUgraphExec *)&held->object, made, 0);
    cu.cuGraphDestroy(made);
    if (rc != CUDA_SUCCESS)
        return rc;
    for (unsigned times = frees ? 1 + dice(3) : 1; times > 0 && rc == CUDA_SUCCESS; times--)
        rc = cu.cuGraphLaunch(held->object, NULL);
    if (rc != CUDA_SUCCESS)
        cu.cuGraphExecDestroy(held->object);
    held->address = frees ? 0 : node.pointer;
    return rc;
}

static CUresult end_graph(struct held *held)
{
    CUresult rc = cu.cuCtxSynchronize();
    if (held->address != 0 && dice(2) != 0) { /* freed, and taken once more by the same graph */
        rc |= cu.cuMemFreeAsync(held->address, NULL);
        if (cu.cuGraphLaunch(held->object, NULL) != CUDA_SUCCESS)
            held->address = 0;
        cu.cuCtxSynchronize();
    }
    if (held->address != 0)
        rc |= cu.cuMemFree_v2(held->address);
    rc |= cu.cuGraphExecDestroy(held->object);
    return dice(2) != 0 ? rc | cu.cuDeviceGraphMemTrim(0) : rc;
}

static CUresult module(struct held *held)
{
    char text[200];
    snprintf(text, sizeof text, ".version 8.0\n.target sm_80\n.global .b8 g[%zu];\n", some_size());
    return cu.cuModuleLoadData(&held->object, text);
}

static CUresult module_unload(struct held *held)
{
    return cu.cuModuleUnload(held->object);
}

static CUresult context(struct held *held)
{
    CUcontext popped;
    CUresult rc = cu.cuCtxCreate_v2((CUcontext *)&held->object, 0, 0);
    return rc == CUDA_SUCCESS ? cu.cuCtxPopCurrent(&popped) : rc; /* or the thread's stack of contexts is full after a while */
}

static CUresult context_destroy(struct held *held)
{
    return cu.cuCtxDestroy_v2(held->object);
}

/* Memory that was taken while a green context was current: it may outlive that. */
static CUresult green(struct held *held)
{
    unsigned char all[144];
    void *described;
    CUgreenCtx part = NULL;
    CUcontext context;
    CUresult rc = cu.cuDeviceGetDevResource(0, all, 1) | cu.cuDevResourceGenerateDesc(&described, all, 1);
    if (rc != CUDA_SUCCESS || (rc = cu.cuGreenCtxCreate(&part, described, 0, 1)) != CUDA_SUCCESS)
        return rc;
    if (cu.cuCtxFromGreenCtx(&context, part) == CUDA_SUCCESS && cu.cuCtxSetCurrent(context) == CUDA_SUCCESS)
        rc = cu.cuMemAlloc_v2(&held->address, some_size());
    cu.cuCtxSetCurrent(primary);
    if (rc != CUDA_SUCCESS || dice(2) != 0)
        rc |= cu.cuGreenCtxDestroy(part);
    else
        held->object = part;
    return rc;
}

/* What it was current for and the green context itself, in any order. */
static CUresult end_green(struct held *held)
{
    bool first = dice(2) != 0;
    CUresult rc = first ? cu.cuMemFree_v2(held->address) : CUDA_SUCCESS;
    if (held->object != NULL)
        rc |= cu.cuGreenCtxDestroy(held->object);
    return first ? rc : rc | cu.cuMemFree_v2(held->address);
}

static CUresult heap(struct held *held)
{
    (void)held;
    return cu.cuCtxSetLimit(HEAP_SIZE, 8 * MIB + whole(some_size()));
}

static CUresult heap_back(struct held *held)
{
    (void)held;
    return cu.cuCtxSetLimit(HEAP_SIZE, 8 * MIB);
}

/* ---- passing on ------------------------------------------------------------------------------------------------------ */

static bool send_on(const void *bytes, size_t count, int descriptor)
{
    char room[CMSG_SPACE(sizeof descriptor)] = {0};
    struct iovec io = {(void *)(uintptr_t)bytes, count};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
    if (descriptor >= 0) {
        message.msg_control = room;
        message.msg_controllen = sizeof room;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof descriptor), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
    }
    return sendmsg(to_next, &message, MSG_DONTWAIT) >= 0;
}

/* A handle of memory, or the size of what the descriptor stands for. 0: nobody sent anything. */
static ssize_t receive(struct ipc_handle *handle, int *descriptor)
{
    char room[CMSG_SPACE(sizeof *descriptor)] = {0};
    struct iovec io = {handle, sizeof *handle};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    *descriptor = -1;
    ssize_t got = recvmsg(from_last, &message, MSG_DONTWAIT);
    struct cmsghdr *head = got < 0 ? NULL : CMSG_FIRSTHDR(&message);
    if (head != NULL && head->cmsg_type == SCM_RIGHTS)
        memcpy(descriptor, CMSG_DATA(head), sizeof *descriptor);
    return got < 0 ? 0 : got;
}

static CUresult exported(struct held *held)
{
    struct ipc_handle handle;
    CUresult rc = linear(held);
    if (rc == CUDA_SUCCESS && cu.cuIpcGetMemHandle(&handle, held->address) == CUDA_SUCCESS)
        send_on(&handle, sizeof handle, -1);
    return rc;
}

static CUresult described(struct held *held)
{
    int descriptor = -1;
    CUresult rc = physical(held);
    if (rc == CUDA_SUCCESS && cu.cuMemExportToShareableHandle(&descriptor, held->handle, HANDLE_TYPE_DESCRIPTOR, 0) == CUDA_SUCCESS) {
        send_on(&held->bytes, sizeof held->bytes, descriptor);
        close(descriptor);
    }
    return rc;
}

static CUresult close_opened(struct held *held)
{
    return cu.cuIpcCloseMemHandle(held->address);
}

static const struct path opened_path, imported_path;

/* The latest that the one before in the ring has sent: what is older has mostly gone. */
static CUresult passed_on(struct held *held)
{
    struct ipc_handle handle, next;
    int descriptor = -1, following;
    ssize_t got = 0, more;
    while ((more = receive(&next, &following)) > 0) {
        if (descriptor >= 0)
            close(descriptor);
        handle = next;
        descriptor = following;
        got = more;
    }
    if (got == (ssize_t)sizeof handle) {
        held->path = &opened_path;
        return cu.cuIpcOpenMemHandle_v2(&held->address, handle, OPEN_READ_WRITE);
    }
    if (got != (ssize_t)sizeof held->bytes || descriptor < 0)
        return -1;
    held->path = &imported_path;
    memcpy(&held->bytes, &handle, sizeof held->bytes);
    CUresult rc = cu.cuMemImportFromShareableHandle(&held->handle, (void *)(intptr_t)descriptor, HANDLE_TYPE_DESCRIPTOR);
    close(descriptor);
    if (rc == CUDA_SUCCESS && dice(2) != 0)
        map(held);
    return rc;
}

static const struct path opened_path = {"opened", NULL, close_opened, true};
static const struct path imported_path = {"imported", NULL, let_physical_go, true};
static const struct path paths[] = {
    {"linear", linear, free_linear, false},
    {"managed", managed, free_linear, false},
    {"pitched", pitched, free_linear, false},
    {"array", array, array_destroy, false},
    {"mipmapped", mipmapped, mipmapped_destroy, false},
    {"physical", physical, let_physical_go, false},
    {"multicast", multicast, end_multicast, false},
    {"stream-ordered", stream_ordered, free_ordered, false},
    {"own_pool", own_pool, end_pool, false},
    {"graph", graph, end_graph, false},
    {"module", module, module_unload, false},
    {"heap", heap, heap_back, false},
    {"context", context, context_destroy, false},
    {"green", green, end_green, false},
    {"exported", exported, free_linear, false},
    {"described", described, let_physical_go, false},
    {"passed_on", passed_on, NULL, true},
};
enum { PATHS = sizeof paths / sizeof *paths };
static unsigned chosen[PATHS], chosen_count;

/* ---- the work -------------------------------------------------------------------------------------------------------- */

static struct shared {
    long left;
    unsigned long granted[PATHS], refused[PATHS], wrong;
    int ready;
} *all;

static void complain(const char *path, const char *what, CUresult rc)
{
    if (__atomic_fetch_add(&all->wrong, 1, __ATOMIC_RELAXED) < 20)
        fprintf(stderr, "%s, %s: %d\n", path, what, rc);
}

static void take(struct held *held)
{
    unsigned which = chosen[dice(chosen_count)];
    if (strcmp(paths[which].name, "context") == 0 && dice(8) != 0)
        which = chosen[0]; /* large ones leave no room for the rest */
    *held = (struct held){.path = &paths[which]};
    CUresult rc = paths[which].take(held);
    if (rc != CUDA_SUCCESS && rc != CUDA_ERROR_OUT_OF_MEMORY && !paths[which].of_others)
        complain(paths[which].name, "asked for", rc);
    __atomic_fetch_add(rc == CUDA_SUCCESS ? &all->granted[which] : &all->refused[which], rc >= 0, __ATOMIC_RELAXED);
    if (rc != CUDA_SUCCESS)
        *held = (struct held){0};
}

static void give(struct held *held)
{
    CUresult rc = held->path->give(held);
    if (rc != CUDA_SUCCESS)
        complain(held->path->name, "given back", rc);
    *held = (struct held){0};
}

static int work(int number, int count)
{
    static struct held held[HELD];
    seed = (unsigned)(number + 1) * 2654435761u;
    load();
    CUresult rc = cu.cuInit(0);
    while (rc == CUDA_SUCCESS && (rc = cu.cuDevicePrimaryCtxRetain(&primary, 0)) == CUDA_ERROR_OUT_OF_MEMORY)
        usleep(1000);
    if (rc != CUDA_SUCCESS || cu.cuCtxSetCurrent(primary) != CUDA_SUCCESS)
        return 2;
    __atomic_fetch_add(&all->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < count)
        usleep(1000);
    while (__atomic_fetch_sub(&all->left, 1, __ATOMIC_RELAXED) > 0) {
        struct held *one = &held[dice(HELD)];
        if (one->path != NULL)
            give(one);
        else
            take(one);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i].path != NULL)
            give(&held[i]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "mill PROCESSES OPERATIONS LARGEST_BYTES\n");
        return 2;
    }
    for (unsigned i = 0; i < PATHS; i++) {
        bool wanted = argc == 4;
        for (int word = 4; word < argc; word++)
            wanted |= strcmp(argv[word], paths[i].name) == 0;
        if (wanted)
            chosen[chosen_count++] = i;
    }
    if (chosen_count == 0)
        return 2;
    int count = atoi(argv[1]) < PROCESSES ? atoi(argv[1]) : PROCESSES, ring[PROCESSES][2], failed = 0;
    largest = strtoull(argv[3], NULL, 10);
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    all->left = atol(argv[2]);
    for (int i = 0; i < count; i++)
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ring[i]) != 0)
            return 2;
    for (int i = 0; i < count; i++) {
        to_next = ring[(i + 1) % count][0];
        from_last = ring[i][1];
        if (fork() == 0)
            exit(work(i, count));
    }
    for (int status; wait(&status) > 0;)
        failed += status != 0;
    for (int i = 0; i < PATHS; i++)
        printf("%s\"%s\": [%lu, %lu]", i == 0 ? "{" : ", ", paths[i].name, all->granted[i], all->refused[i]);
    printf("}\n");
    return failed != 0 || all->wrong != 0;
}
