/* Devices and contexts: which cards a program sees, and what being on one costs. */
#include "check.h"

#define MIB (1ull << 20)

CUresult cuCtxPushCurrent_v2(CUcontext);
CUresult cuCtxPopCurrent_v2(CUcontext *);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *, int *);
CUresult cuDeviceGetPCIBusId(char *, int, CUdevice);
CUresult cuDeviceGetByPCIBusId(CUdevice *, const char *);
CUresult cuDeviceCanAccessPeer(int *, CUdevice, CUdevice);
CUresult cuDeviceGetP2PAttribute(int *, int, CUdevice, CUdevice);
CUresult cuCtxEnablePeerAccess(CUcontext, unsigned);
CUresult cuCtxDisablePeerAccess(CUcontext);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *, CUdevice);
typedef struct { int type, device, flags; } Access;
CUresult cuMemPoolSetAccess(CUmemoryPool, const Access *, size_t);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *, size_t, CUmemoryPool, CUstream);
CUresult cuMemcpyPeer(CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t);

static void contexts_cost_memory_and_stack_up(void)
{
    fresh_machine("cards=2 memory_mib=8192 context_mib=300");
    OK(cuInit(0));
    CUcontext a, b, seen;
    unsigned flags;
    int active;
    size_t n, total;
    EQUAL(cuMemGetInfo_v2(&n, &total), 201);
    OK(cuDevicePrimaryCtxRetain(&a, 0));
    OK(cuDevicePrimaryCtxRetain(&b, 0));
    CHECK(a == b);
    OK(cuCtxSetCurrent(a));
    EQUAL(free_now(), 7892 * MIB);
    OK(cuCtxCreate_v2(&b, 0, 0));
    EQUAL(free_now(), 7592 * MIB);
    OK(cuCtxGetCurrent(&seen));
    CHECK(seen == b);
    OK(cuCtxPopCurrent_v2(&seen));
    CHECK(seen == b);
    OK(cuCtxDestroy_v2(b));
    EQUAL(cuCtxPushCurrent_v2(b), 201);
    EQUAL(free_now(), 7892 * MIB);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(active, 1);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(active, 0);
    EQUAL(cuMemGetInfo_v2(&n, &total), 709);
    EQUAL(cuDevicePrimaryCtxRelease_v2(0), 201);
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    drop_machine();
}

static void a_context_takes_its_memory_with_it(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    CUcontext context = begin(0);
    CUdeviceptr p;
    for (int i = 0; i < 100; i++)
        OK(cuMemAlloc_v2(&p, 1000 + (size_t)i * 100000));
    OK(cuCtxDestroy_v2(context));
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    EQUAL(pumice_machine_state()->processes[0].accounts[0].requested_bytes, 0);
    drop_machine();
}

static void devices_are_those_that_the_environment_names(void)
{
    fresh_machine("cards=3");
    setenv("CUDA_VISIBLE_DEVICES", "GPU-0000abc2,0,7,1", 1); /* an item that names nothing ends the list */
    int count;
    char bus[32];
    CUdevice device;
    OK(cuInit(0));
    OK(cuDeviceGetCount(&count));
    EQUAL(count, 2);
    OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(strcmp(bus, "0000:09:00.0") == 0);
    OK(cuDeviceGetByPCIBusId(&device, "0000:07:00.0"));
    EQUAL(device, 1);
    EQUAL(cuDeviceGetByPCIBusId(&device, "0000:08:00.0"), 101);
    drop_machine();
}

static void the_fastest_card_comes_first_unless_the_bus_is_asked_for(void)
{
    fresh_machine("cards=2");
    pumice_machine_state()->card[0].sm_count = 28;
    char bus[32];
    for (int by_bus = 0; by_bus < 2; by_bus++) {
        if (child() == 0) {
            if (by_bus)
                setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
            OK(cuInit(0));
            OK(cuDeviceGetPCIBusId(bus, sizeof bus, 0));
            CHECK(strcmp(bus, by_bus ? "0000:07:00.0" : "0000:08:00.0") == 0);
            exit(0);
        }
        children_end(1);
    }
    drop_machine();
}

static void an_exclusive_card_serves_one_process(void)
{
    fresh_machine("cards=2");
    struct machine_state *m = pumice_machine_state();
    m->card[0].compute_mode = 3;
    m->card[1].compute_mode = 2; /* prohibited */
    CUcontext c;
    int taken[2];
    char byte;
    CHECK(pipe(taken) == 0);
    if (child() == 0) {
        CHECK(read(taken[0], &byte, 1) == 1);
        OK(cuInit(0));
        EQUAL(cuCtxCreate_v2(&c, 0, 0), 46);
        m->card[0].compute_mode = 0;
        OK(cuCtxCreate_v2(&c, 0, 0));
        exit(0);
    }
    begin(0);
    EQUAL(cuCtxCreate_v2(&c, 0, 1), 46);
    CHECK(write(taken[1], "t", 1) == 1);
    children_end(1);
    drop_machine();
}

static void cards_without_a_way_to_each_other_refuse_peer_access(void)
{
    fresh_machine("cards=3");
    OK(cuInit(0));
    struct machine_card *card = pumice_machine_state()->card;
    int can, atomics;
    CUcontext first, second;
    CUmemoryPool pool;
    OK(cuCtxCreate_v2(&second, 0, 1));
    OK(cuCtxCreate_v2(&first, 0, 0));
    OK(cuDeviceGetDefaultMemPool(&pool, 1));
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    EQUAL(can, 1);
    OK(cuDeviceCanAccessPeer(&can, 0, 0));
    EQUAL(can, 0);
    OK(cuDeviceGetP2PAttribute(&atomics, 3, 0, 1));
    EQUAL(atomics, 1);
    for (int i = 0; i < 3; i++)
        card[i].link_count = 0;
    OK(cuDeviceGetP2PAttribute(&atomics, 3, 0, 1)); /* over PCIe */
    EQUAL(atomics, 0);
    EQUAL(cuCtxDisablePeerAccess(second), 705);
    OK(cuCtxEnablePeerAccess(second, 0));
    EQUAL(cuCtxEnablePeerAccess(second, 0), 704);
    EQUAL(cuCtxEnablePeerAccess(first, 0), 201); /* itself */
    OK(cuCtxDisablePeerAccess(second));
    CUdeviceptr here, there;
    OK(cuMemAlloc_v2(&here, 4096));
    OK(cuMemAllocFromPoolAsync(&there, 4096, pool, NULL));
    EQUAL(cuMemcpyDtoD_v2(there, here, 4096), 1); /* what a pool gave is reached by whom it was opened to */
    EQUAL(cuMemcpyDtoD_v2(here, there, 4096), 1);
    OK(cuMemcpyPeer(there, second, here, first, 4096));
    OK(cuMemPoolSetAccess(pool, &(Access){1, 0, 3}, 1));
    OK(cuMemcpyDtoD_v2(there, here, 4096));
    for (int i = 0; i < 2; i++)
        card[i].brand = 5, card[i].cc_minor = 9; /* GeForce of Ada */
    OK(cuDeviceCanAccessPeer(&can, 0, 1));
    EQUAL(can, 0);
    EQUAL(cuCtxEnablePeerAccess(second, 0), 217);
    EQUAL(cuMemPoolSetAccess(pool, &(Access){1, 0, 3}, 1), 101);
    OK(cuMemPoolSetAccess(pool, &(Access){1, 0, 0}, 1)); /* what nobody has is taken from everybody */
    card[1].cc_minor = 0, card[1].brand = 0, card[1].architecture = 9;
    card[0].cc_minor = 0, card[0].brand = 0;
    OK(cuDeviceCanAccessPeer(&can, 0, 1)); /* another generation */
    EQUAL(can, 0);
    drop_machine();
}

static void no_machine_is_no_device(void)
{
    setenv("PUMICE_MACHINE", "/nonexistent", 1);
    int version = -1;
    CUcontext c;
    EQUAL(cuInit(0), 100);
    OK(cuDriverGetVersion(&version));
    EQUAL(version, 0);
    EQUAL(cuCtxCreate_v2(&c, 0, 0), 3);
}

CUresult cuGetErrorName(CUresult, const char **);
CUresult cuGetErrorString(CUresult, const char **);
CUresult cuFuncGetName(const char **, void *);
CUresult cuKernelGetName(const char **, void *);

static void errors_have_names_and_texts(void)
{
    static const CUresult known[] = {0, 6, 102, 219, 222, 302, 402, 703, 711, 718, 721, 804, 812, 911, 917};
    const char *name = NULL, *text = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        OK(cuGetErrorName(known[i], &name));
        OK(cuGetErrorString(known[i], &text));
        CHECK(strncmp(name, "CUDA_", 5) == 0 && *text);
    }
    EQUAL(cuGetErrorName(1000, &name), 1);
    CHECK(name == NULL);
}

static void no_function_has_no_name(void)
{
    fresh_machine("memory_mib=8192");
    begin(0);
    const char *name;
    EQUAL(cuFuncGetName(&name, NULL), 1);
    EQUAL(cuKernelGetName(&name, NULL), 1);
    EQUAL(cuKernelGetName(&name, &name), 400);
    drop_machine();
}

CUresult cuCoredumpSetAttributeGlobal(int, const void *, const size_t *);
CUresult cuCoredumpGetAttributeGlobal(int, void *, size_t *);

static void settings_of_core_dumps_are_read_back(void)
{
    enum { TRIGGER_HOST = 2, LIGHTWEIGHT, USER_TRIGGER, FILE_NAME, PIPE_NAME, FLAGS };
    fresh_machine("memory_mib=8192");
    OK(cuInit(0));
    bool on = false;
    size_t one = 1, four = 4, size = 0;
    unsigned flags = 0, unknown = 1 << 20;
    char name[1024];
    OK(cuCoredumpGetAttributeGlobal(FILE_NAME, NULL, &size));
    OK(cuCoredumpGetAttributeGlobal(FILE_NAME, name, &size));
    CHECK(strncmp(name, "core.cuda.", 10) == 0 && size == strlen(name) + 1);
    size = 8;
    OK(cuCoredumpSetAttributeGlobal(PIPE_NAME, "corepipe", &size));
    EQUAL(cuCoredumpGetAttributeGlobal(PIPE_NAME, name, &size), 1);
    size = sizeof name;
    OK(cuCoredumpGetAttributeGlobal(PIPE_NAME, name, &size));
    CHECK(strcmp(name, "corepipe") == 0);
    OK(cuCoredumpGetAttributeGlobal(TRIGGER_HOST, &on, &one));
    CHECK(on);
    on = true;
    OK(cuCoredumpSetAttributeGlobal(LIGHTWEIGHT, &on, &one));
    OK(cuCoredumpGetAttributeGlobal(FLAGS, &flags, &four));
    EQUAL(flags, 0x4f);
    EQUAL(cuCoredumpSetAttributeGlobal(FLAGS, &unknown, &four), 1);
    OK(cuCoredumpSetAttributeGlobal(USER_TRIGGER, &on, &one));
    EQUAL(cuCoredumpSetAttributeGlobal(PIPE_NAME, "elsewhere", &size), 800);
    drop_machine();
}

int main(void)
{
    apart(contexts_cost_memory_and_stack_up);
    apart(a_context_takes_its_memory_with_it);
    apart(devices_are_those_that_the_environment_names);
    apart(the_fastest_card_comes_first_unless_the_bus_is_asked_for);
    apart(an_exclusive_card_serves_one_process);
    apart(cards_without_a_way_to_each_other_refuse_peer_access);
    apart(no_machine_is_no_device);
    apart(errors_have_names_and_texts);
    apart(no_function_has_no_name);
    apart(settings_of_core_dumps_are_read_back);
    return 0;
}
