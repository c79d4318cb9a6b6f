/* Green contexts: parts of a card's processors, with streams of their own. */
#include "check.h"

#define MS 1000000ull
#define MIB (1ull << 20)

typedef void *CUgreenCtx, *Resources;
typedef struct Resource {
    int type;
    unsigned char internal[92];
    union {
        struct { unsigned count, least, alignment, flags; } sm;
        struct { CUdevice device; unsigned concurrency; int scope; } queues;
        unsigned char room[40];
    };
    struct Resource *next;
} Resource;
typedef struct { unsigned count, together, wished, flags, reserved[12]; } Group;
enum { SM = 1, QUEUES_WANTED = 1000, QUEUES = 10000 };
CUresult cuDeviceGetDevResource(CUdevice, Resource *, int);
CUresult cuCtxGetDevResource(CUcontext, Resource *, int);
CUresult cuGreenCtxGetDevResource(CUgreenCtx, Resource *, int);
CUresult cuStreamGetDevResource(CUstream, Resource *, int);
CUresult cuDevSmResourceSplitByCount(Resource *, unsigned *, const Resource *, Resource *, unsigned, unsigned);
CUresult cuDevSmResourceSplit(Resource *, unsigned, const Resource *, Resource *, unsigned, Group *);
CUresult cuDevResourceGenerateDesc(Resources *, Resource *, unsigned);
CUresult cuGreenCtxCreate(CUgreenCtx *, Resources, CUdevice, unsigned);
CUresult cuGreenCtxDestroy(CUgreenCtx);
CUresult cuGreenCtxGetId(CUgreenCtx, unsigned long long *);
CUresult cuCtxFromGreenCtx(CUcontext *, CUgreenCtx);
CUresult cuGreenCtxStreamCreate(CUstream *, CUgreenCtx, unsigned, int);
CUresult cuGreenCtxRecordEvent(CUgreenCtx, CUevent);
CUresult cuGreenCtxWaitEvent(CUgreenCtx, CUevent);
CUresult cuCtxRecordEvent(CUcontext, CUevent);
CUresult cuCtxWaitEvent(CUcontext, CUevent);
CUresult cuStreamGetCtx(CUstream, CUcontext *);
CUresult cuStreamGetCtx_v2(CUstream, CUcontext *, CUgreenCtx *);
CUresult cuStreamGetGreenCtx(CUstream, CUgreenCtx *);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *, int *);
CUresult cuCtxGetDevice(CUdevice *);

static Resource all_of(CUdevice device)
{
    Resource all;
    OK(cuDeviceGetDevResource(device, &all, SM));
    return all;
}

static CUgreenCtx green_of(Resource *part)
{
    Resources described;
    CUgreenCtx green;
    OK(cuDevResourceGenerateDesc(&described, part, 1));
    OK(cuGreenCtxCreate(&green, described, 0, 1));
    return green;
}

static CUstream stream_in(CUgreenCtx green)
{
    CUstream stream;
    OK(cuGreenCtxStreamCreate(&stream, green, 1, 0));
    return stream;
}

static CUresult run_blocks(CUfunction f, unsigned blocks, CUstream stream)
{
    return cuLaunchKernel(f, blocks, 1, 1, 32, 1, 1, 0, stream, NULL, NULL);
}

/* The two halves of a card of 108 processors. */
static void halves(CUgreenCtx *greens, CUstream *streams)
{
    Resource all = all_of(0), parts[2];
    unsigned count = 2;
    OK(cuDevSmResourceSplitByCount(parts, &count, &all, NULL, 0, 54));
    EQUAL(count, 2);
    for (int i = 0; i < 2; i++) {
        greens[i] = green_of(&parts[i]);
        streams[i] = stream_in(greens[i]);
    }
}

static void halves_beside_a_primary_context(CUgreenCtx *greens, CUstream *streams)
{
    CUcontext primary;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    halves(greens, streams);
}

static void a_card_is_split_by_the_groups_of_its_generation(void)
{
    fresh_machine("");
    OK(cuInit(0));
    Resource all = all_of(0), parts[20], rest;
    EQUAL(all.sm.count, 108);
    EQUAL(all.sm.alignment, 2);
    unsigned count = 0;
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 15));
    EQUAL(count, 6); /* of 16 */
    OK(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 15));
    EQUAL(parts[5].sm.count, 16);
    EQUAL(rest.sm.count, 12);
    count = 2;
    OK(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 16));
    EQUAL(count, 2);
    EQUAL(rest.sm.count, 76);
    EQUAL(cuDevSmResourceSplitByCount(parts, &count, &parts[0], NULL, 0, 2), 915); /* what was split is split no further */
    EQUAL(cuDevSmResourceSplitByCount(parts, &count, &all, NULL, 0, 109), 1);
    EQUAL(cuDevSmResourceSplitByCount(parts, &count, &all, NULL, 2, 8), 1); /* clusters came with 9.0 */
    all.sm.count = 200;
    EQUAL(cuDevSmResourceSplitByCount(parts, &count, &all, NULL, 0, 2), 1); /* somebody wrote into it */
    pumice_machine_state()->card[0].cc_major = 9;
    all = all_of(0);
    EQUAL(all.sm.least, 8);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 0, 10));
    EQUAL(count, 108 / 16);
    OK(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, 1, 10));
    EQUAL(count, 108 / 10);
    drop_machine();
}

static void unlike_groups_are_found_and_cut(void)
{
    fresh_machine("");
    OK(cuInit(0));
    pumice_machine_state()->card[0].cc_major = 9;
    Resource all = all_of(0), parts[2], rest;
    Group ask[2] = {{.together = 16}, {0}};
    OK(cuDevSmResourceSplit(NULL, 1, &all, NULL, 0, ask));
    EQUAL(ask[0].count, 96); /* whole sixteens of 108 */
    Group cut[2] = {{.count = 32, .together = 16}, {.together = 2, .flags = 1}};
    OK(cuDevSmResourceSplit(parts, 2, &all, &rest, 0, cut));
    EQUAL(parts[0].sm.count, 32);
    EQUAL(parts[1].sm.count, 76);
    EQUAL(cut[1].count, 76);
    EQUAL(rest.type, 0); /* nothing is left */
    Group odd = {.count = 20, .together = 16}, much = {.count = 110}, far = {.count = 64, .together = 64};
    EQUAL(cuDevSmResourceSplit(parts, 1, &all, NULL, 0, &odd), 915);
    EQUAL(cuDevSmResourceSplit(parts, 1, &all, NULL, 0, &much), 915);
    EQUAL(cuDevSmResourceSplit(parts, 1, &all, NULL, 0, &far), 915);
    drop_machine();
}

static void descriptors_take_parts_of_one_split(void)
{
    fresh_machine("cards=2");
    OK(cuInit(0));
    Resource all = all_of(0), other = all_of(1), first[2], second[2], queues;
    unsigned count = 2;
    OK(cuDevSmResourceSplitByCount(first, &count, &all, NULL, 0, 20));
    OK(cuDevSmResourceSplitByCount(second, &count, &all, NULL, 0, 20));
    OK(cuDeviceGetDevResource(0, &queues, QUEUES_WANTED));
    EQUAL(queues.queues.concurrency, 8);
    Resource there;
    OK(cuDeviceGetDevResource(0, &there, QUEUES));
    EQUAL(cuDeviceGetDevResource(0, &queues, 7), 914);
    Resources described;
    CUgreenCtx green;
    Resource both[3] = {first[0], first[1], queues}, mixed[2] = {first[0], second[0]}, far[2] = {first[0], other};
    both[2].queues.concurrency = 3;
    OK(cuDevResourceGenerateDesc(&described, both, 3));
    EQUAL(cuGreenCtxCreate(&green, described, 1, 1), 1); /* of another device */
    EQUAL(cuGreenCtxCreate(&green, (Resources)&both, 0, 1), 1);
    OK(cuGreenCtxCreate(&green, described, 0, 1));
    OK(cuGreenCtxGetDevResource(green, &all, SM));
    EQUAL(all.sm.count, 40);
    OK(cuGreenCtxGetDevResource(green, &queues, QUEUES_WANTED));
    EQUAL(queues.queues.concurrency, 3);
    OK(cuGreenCtxGetDevResource(green, &queues, QUEUES));
    OK(cuDevSmResourceSplitByCount(first, &count, &all, NULL, 0, 20)); /* a context's own is split again */
    EQUAL(cuDevResourceGenerateDesc(&described, mixed, 2), 915);
    EQUAL(cuDevResourceGenerateDesc(&described, far, 2), 915);
    Resource nothing = {.type = SM};
    EQUAL(cuDevResourceGenerateDesc(&described, &nothing, 1), 1);
    drop_machine();
}

static void a_kernel_of_many_blocks_takes_longer_on_a_part(void)
{
    fresh_machine("virtual=1");
    OK(cuInit(0));
    CUgreenCtx greens[2];
    CUstream streams[2];
    halves(greens, streams);
    CUcontext context;
    OK(cuCtxFromGreenCtx(&context, greens[0]));
    OK(cuCtxSetCurrent(context));
    CUfunction f = kernel("pumice-kernel name=k ns=4000000\n", "k");
    static const struct { unsigned blocks; uint64_t ms; } rows[] = {{1, 4}, {54, 4}, {55, 8}, {108, 8}, {216, 8}, {324, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t start = pumice_machine_now_ns();
        OK(run_blocks(f, rows[i].blocks, streams[0]));
        OK(cuStreamSynchronize(streams[0]));
        EQUAL(pumice_machine_now_ns() - start, rows[i].ms * MS);
        OK(run_blocks(f, rows[i].blocks, NULL)); /* the context's own default stream */
        OK(cuCtxSynchronize());
        EQUAL(pumice_machine_now_ns() - start, 2 * rows[i].ms * MS);
    }
    drop_machine();
}

static void parts_of_a_card_run_side_by_side_and_the_whole_card_behind_them(void)
{
    fresh_machine("virtual=1");
    CUgreenCtx greens[2];
    CUstream streams[2];
    halves_beside_a_primary_context(greens, streams);
    CUfunction f = kernel("pumice-kernel name=k ns=4000000\n", "k");
    uint64_t start = pumice_machine_now_ns();
    for (int n = 0; n < 10; n++)
        for (int i = 0; i < 2; i++)
            OK(run_blocks(f, 108, streams[i]));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 80 * MS); /* as long as 20 kernels on the whole card */
    EQUAL(pumice_machine_state()->processes[0].accounts[0].served_ns, 80 * MS);
    CUstream again = stream_in(greens[0]);
    OK(run_blocks(f, 108, streams[0]));
    OK(run_blocks(f, 108, again)); /* two streams of one part share it */
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 96 * MS);
    OK(run_blocks(f, 108, streams[0]));
    OK(run_blocks(f, 108, NULL)); /* the whole card */
    OK(run_blocks(f, 108, streams[1]));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, (96 + 8 + 4 + 8) * MS);
    drop_machine();
}

static void events_stand_for_what_a_part_was_given(void)
{
    fresh_machine("virtual=1");
    CUgreenCtx greens[2];
    CUstream streams[2];
    CUcontext primary;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    halves(greens, streams);
    CUfunction f = kernel("pumice-kernel name=k ns=4000000\n", "k");
    CUevent first, both;
    OK(cuEventCreate(&first, 0));
    OK(cuEventCreate(&both, 0));
    uint64_t start = pumice_machine_now_ns();
    OK(run_blocks(f, 54, streams[0]));
    for (int n = 0; n < 3; n++)
        OK(run_blocks(f, 54, streams[1]));
    OK(cuGreenCtxRecordEvent(greens[0], first));
    OK(cuCtxRecordEvent(primary, both)); /* its green contexts' work, too */
    OK(cuEventSynchronize(first));
    EQUAL(pumice_machine_now_ns() - start, 4 * MS);
    OK(cuEventSynchronize(both));
    EQUAL(pumice_machine_now_ns() - start, 12 * MS);
    OK(run_blocks(f, 54, streams[1]));
    OK(cuGreenCtxRecordEvent(greens[1], first));
    OK(cuGreenCtxWaitEvent(greens[0], first));
    OK(run_blocks(f, 54, stream_in(greens[0]))); /* a stream that was made after it, too */
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 20 * MS);
    CUgraph graph;
    OK(cuStreamBeginCapture_v2(streams[0], 2));
    EQUAL(cuGreenCtxRecordEvent(greens[0], first), 900);
    EQUAL(cuStreamEndCapture(streams[0], &graph), 901);
    drop_machine();
}

static void a_captured_kernel_keeps_to_its_part(void)
{
    fresh_machine("virtual=1");
    CUgreenCtx greens[2];
    CUstream streams[2];
    halves_beside_a_primary_context(greens, streams);
    CUfunction f = kernel("pumice-kernel name=k ns=4000000\n", "k");
    CUgraph graph;
    CUgraphExec exec;
    OK(cuStreamBeginCapture_v2(streams[0], 2));
    OK(run_blocks(f, 108, streams[0]));
    OK(cuStreamEndCapture(streams[0], &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    uint64_t start = pumice_machine_now_ns();
    OK(cuGraphLaunch(exec, streams[0]));
    OK(run_blocks(f, 108, streams[1]));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 8 * MS);
    drop_machine();
}

static void memory_of_a_green_context_is_the_primary_ones(void)
{
    fresh_machine("memory_mib=8192 context_mib=300");
    OK(cuInit(0));
    Resource all = all_of(0);
    CUgreenCtx a = green_of(&all), b = green_of(&all);
    CUcontext in_a, in_b, current, primary;
    CUdevice device;
    unsigned flags;
    int active;
    OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
    EQUAL(active, 1);
    OK(cuCtxFromGreenCtx(&in_a, a));
    OK(cuCtxFromGreenCtx(&in_b, b));
    CHECK(in_a != in_b);
    OK(cuCtxSetCurrent(in_a));
    OK(cuCtxGetCurrent(&current));
    CHECK(current == in_a);
    OK(cuCtxGetDevice(&device));
    EQUAL(free_now(), 7892 * MIB); /* one context's price, however many parts */
    CUdeviceptr kept;
    OK(cuMemAlloc_v2(&kept, 100 * MIB));
    EQUAL(cuCtxDestroy_v2(in_a), 201); /* it goes with its green context */
    OK(cuGreenCtxDestroy(a));
    EQUAL(cuGreenCtxDestroy(a), 201);
    CUdeviceptr p;
    EQUAL(cuMemAlloc_v2(&p, 1), 709);
    OK(cuCtxSetCurrent(in_b));
    EQUAL(free_now(), 7792 * MIB);
    OK(cuMemFree_v2(kept));
    OK(cuMemAlloc_v2(&kept, 100 * MIB));
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuDevicePrimaryCtxRelease_v2(0));
    OK(cuGreenCtxDestroy(b)); /* the last that held the primary context */
    EQUAL(pumice_machine_state()->card[0].lanes[0].used_bytes, 0);
    drop_machine();
}

static void streams_outlive_their_green_context_and_serve_no_more(void)
{
    fresh_machine("");
    OK(cuInit(0));
    CUgreenCtx greens[2], told;
    CUstream streams[2], plain;
    CUcontext primary, context, seen;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    halves(greens, streams);
    OK(cuCtxSetCurrent(primary));
    CUfunction f = kernel("pumice-kernel name=k ns=1000\n", "k");
    OK(cuStreamCreate(&plain, 1));
    OK(cuCtxFromGreenCtx(&context, greens[0]));
    OK(cuStreamGetCtx(streams[0], &seen));
    CHECK(seen == context);
    OK(cuStreamGetCtx_v2(streams[0], &seen, &told));
    CHECK(seen == primary && told == greens[0]);
    OK(cuStreamGetCtx_v2(plain, &seen, &told));
    CHECK(seen == primary && told == NULL);
    OK(cuStreamGetGreenCtx(streams[1], &told));
    CHECK(told == greens[1]);
    Resource part;
    OK(cuStreamGetDevResource(streams[1], &part, SM));
    EQUAL(part.sm.count, 54);
    EQUAL(cuStreamGetDevResource(streams[1], &part, QUEUES), 914);
    OK(cuCtxGetDevResource(primary, &part, SM));
    EQUAL(part.sm.count, 108);
    OK(cuCtxSetCurrent(context));
    OK(cuStreamGetGreenCtx(NULL, &told));
    CHECK(told == greens[0]);
    OK(cuStreamCreate(&plain, 1));
    OK(cuStreamGetGreenCtx(plain, &told));
    CHECK(told == greens[0]);
    unsigned long long one, other;
    OK(cuGreenCtxGetId(NULL, &one));
    OK(cuGreenCtxGetId(greens[1], &other));
    CHECK(one != other);
    EQUAL(cuGreenCtxStreamCreate(&plain, greens[0], 0, 0), 1); /* must not wait for the default stream */
    OK(cuCtxSetCurrent(primary));
    OK(cuGreenCtxDestroy(greens[0]));
    EQUAL(run(f, streams[0]), 917);
    EQUAL(cuStreamSynchronize(streams[0]), 917);
    EQUAL(cuStreamQuery(streams[0]), 917);
    OK(cuStreamDestroy_v2(streams[0]));
    EQUAL(cuStreamQuery(streams[0]), 400);
    OK(run(f, streams[1]));
    OK(cuCtxSynchronize());
    drop_machine();
}

int main(void)
{
    apart(a_card_is_split_by_the_groups_of_its_generation);
    apart(unlike_groups_are_found_and_cut);
    apart(descriptors_take_parts_of_one_split);
    apart(a_kernel_of_many_blocks_takes_longer_on_a_part);
    apart(parts_of_a_card_run_side_by_side_and_the_whole_card_behind_them);
    apart(events_stand_for_what_a_part_was_given);
    apart(a_captured_kernel_keeps_to_its_part);
    apart(memory_of_a_green_context_is_the_primary_ones);
    apart(streams_outlive_their_green_context_and_serve_no_more);
    return 0;
}
