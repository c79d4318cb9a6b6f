/*
 * Runs workers under the library on an emulated machine and writes down what the machine saw.
 *
 *     conduct LIBRARY DIRECTORY MILLISECONDS WORKER...
 *     WORKER   tenant=NAME,limit=PERCENT,kernel=NS[,shape=async|sync|graph|cooperative|green][,policy=force|default|disable]
 *              [,start=MS][,arbiter=1][,streams=N][,pause=NS]  launches go round the streams, which in shape green are of a part of
 *              the card each; pause: after each launch, for the program itself
 *     also     change=TENANT:MS:PERCENT (live), switch=TENANT:MS:VALUE, recent=TENANT:MS:VALUE, pulse=TENANT:MS:EVERY_MS (one beat)
 *
 * Workers of one tenant share a region, as processes of one container do. Output: one JSON object with, for each worker, the
 * machine's served_ns at every 10 ms of machine time, and how many launches it made. The conductor itself runs without the library.
 */
#include "check.h"
#include "machine/machine.h"
#include "machine/state.h"
#include "vgpu/region.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <stdbool.h>

enum { WORKERS = 80, CHANGES = 32, SAMPLE_MS = 10, STREAMS = 16 };

static uint64_t (*now_ns)(void);
static int (*sleep_until)(uint64_t);
static int (*join_time)(void);
static int (*leave_time)(void);

static void *need(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "%s is missing\n", name);
        exit(2);
    }
    return found;
}

static void load_machine(void *library)
{
    now_ns = (uint64_t(*)(void))need(library, "pumice_machine_now_ns");
    sleep_until = (int (*)(uint64_t))need(library, "pumice_machine_sleep_until_ns");
    join_time = (int (*)(void))need(library, "pumice_machine_join");
    leave_time = (int (*)(void))need(library, "pumice_machine_leave");
}

static void must(int rc, const char *what)
{
    if (rc != 0) {
        fprintf(stderr, "%s: %d\n", what, rc);
        exit(2);
    }
}

/* ---- a worker ---------------------------------------------------------------------------------------------------- */

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*cooperative_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);

struct gpu {
    launch_fn launch;
    cooperative_fn cooperative;
    int (*synchronize)(void *);
    int (*graph_launch)(void *, void *);
    void *function, *stream, *graph;
    void *streams[STREAMS];
    int count;
};

static void make_graph(struct gpu *gpu, void *cuda, int nodes)
{
    int (*begin)(void *, int) = (int (*)(void *, int))need(cuda, "cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = (int (*)(void *, void **))need(cuda, "cuStreamEndCapture");
    int (*instantiate)(void **, void *, unsigned long long) =
        (int (*)(void **, void *, unsigned long long))need(cuda, "cuGraphInstantiateWithFlags");
    gpu->graph_launch = (int (*)(void *, void *))need(cuda, "cuGraphLaunch");
    void *graph = NULL;
    must(begin(gpu->stream, 0), "cuStreamBeginCapture");
    for (int i = 0; i < nodes; i++)
        must(gpu->launch(gpu->function, 1, 1, 1, 32, 1, 1, 0, gpu->stream, NULL, NULL), "captured launch");
    must(end(gpu->stream, &graph), "cuStreamEndCapture");
    must(instantiate(&gpu->graph, graph, 0), "cuGraphInstantiateWithFlags");
}

/* Each stream in a green context of its own, with its part of the card. */
static void make_parts(struct gpu *gpu, void *cuda)
{
    struct resource { int type; unsigned char internal[92]; unsigned sms, rest[11]; } all, parts[STREAMS];
    _Static_assert(sizeof all == 144, "as cuda.h has it");
    unsigned count = (unsigned)gpu->count;
    must(((int (*)(int, void *, int))need(cuda, "cuDeviceGetDevResource"))(0, &all, 1), "cuDeviceGetDevResource");
    must(((int (*)(void *, unsigned *, void *, void *, unsigned, unsigned))need(cuda, "cuDevSmResourceSplitByCount"))(
             parts, &count, &all, NULL, 0, all.sms / count / 2 * 2),
         "cuDevSmResourceSplitByCount");
    for (unsigned i = 0; i < count; i++) {
        void *described, *green;
        must(((int (*)(void **, void *, unsigned))need(cuda, "cuDevResourceGenerateDesc"))(&described, &parts[i], 1),
             "cuDevResourceGenerateDesc");
        must(((int (*)(void **, void *, int, unsigned))need(cuda, "cuGreenCtxCreate"))(&green, described, 0, 1), "cuGreenCtxCreate");
        must(((int (*)(void **, void *, unsigned, int))need(cuda, "cuGreenCtxStreamCreate"))(&gpu->streams[i], green, 1, 0),
             "cuGreenCtxStreamCreate");
    }
}

static struct gpu open_gpu(void *cuda, const char *kernel, const char *shape, int streams)
{
    struct gpu gpu = {0};
    void *context = NULL, *module = NULL;
    char image[256];
    must(((int (*)(unsigned))need(cuda, "cuInit"))(0), "cuInit");
    must(((int (*)(void **, int))need(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
    must(((int (*)(void *))need(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    snprintf(image, sizeof image, "pumice-kernel name=k ns=%s\n", kernel);
    must(((int (*)(void **, const void *))need(cuda, "cuModuleLoadData"))(&module, image), "cuModuleLoadData");
    must(((int (*)(void **, void *, const char *))need(cuda, "cuModuleGetFunction"))(&gpu.function, module, "k"),
         "cuModuleGetFunction");
    gpu.count = streams < 1 ? 1 : streams > STREAMS ? STREAMS : streams;
    bool parts = strcmp(shape, "green") == 0;
    if (parts)
        make_parts(&gpu, cuda);
    for (int i = 0; i < gpu.count && !parts; i++)
        must(((int (*)(void **, unsigned))need(cuda, "cuStreamCreate"))(&gpu.streams[i], 1), "cuStreamCreate");
    gpu.stream = gpu.streams[0];
    gpu.launch = (launch_fn)need(cuda, "cuLaunchKernel");
    gpu.cooperative = (cooperative_fn)need(cuda, "cuLaunchCooperativeKernel");
    gpu.synchronize = (int (*)(void *))need(cuda, "cuStreamSynchronize");
    if (strcmp(shape, "graph") == 0)
        make_graph(&gpu, cuda, 10);
    return gpu;
}

/* worker KERNEL_NS SHAPE START_MS MILLISECONDS READY_FD GO_FD STREAMS PAUSE_NS */
static int worker(char **argv)
{
    const char *shape = argv[3];
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda == NULL)
        return 2;
    load_machine(cuda);
    struct gpu gpu = open_gpu(cuda, argv[2], shape, atoi(argv[8]));
    join_time();
    char byte = 'r';
    uint64_t begin = 0;
    if (write(atoi(argv[6]), &byte, 1) != 1 || read(atoi(argv[7]), &begin, sizeof begin) != (ssize_t)sizeof begin)
        return 2;
    uint64_t end = begin + strtoull(argv[5], NULL, 10) * 1000000;
    sleep_until(begin + strtoull(argv[4], NULL, 10) * 1000000);
    uint64_t pause_ns = strtoull(argv[9], NULL, 10);
    unsigned long launches = 0;
    for (; now_ns() < end; launches++) {
        int rc;
        gpu.stream = gpu.streams[launches % (unsigned)gpu.count];
        if (gpu.graph != NULL)
            rc = gpu.graph_launch(gpu.graph, gpu.stream);
        else if (strcmp(shape, "cooperative") == 0)
            rc = gpu.cooperative(gpu.function, 1, 1, 1, 32, 1, 1, 0, gpu.stream, NULL);
        else
            rc = gpu.launch(gpu.function, 1, 1, 1, 32, 1, 1, 0, gpu.stream, NULL, NULL);
        must(rc, "launch");
        if (strcmp(shape, "sync") == 0)
            must(gpu.synchronize(gpu.stream), "cuStreamSynchronize");
        if (pause_ns > 0)
            sleep_until(now_ns() + pause_ns);
    }
    leave_time();
    printf("%lu\n", launches);
    fflush(stdout);
    _exit(0); /* what is still queued is not waited for */
}

/* ---- the conductor ------------------------------------------------------------------------------------------------ */

struct player {
    char tenant[64], limit[16], kernel[32], shape[16], policy[16], start[16], arbiter[8], streams[8], pause[16];
    pid_t pid;
    int output;
};

struct change {
    char tenant[64], kind[16];
    uint64_t at_ms;
    long value;
};

static void take(char *into, size_t bytes, const char *spec, const char *key, const char *otherwise)
{
    size_t length = strlen(key);
    snprintf(into, bytes, "%s", otherwise);
    for (const char *at = spec; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            snprintf(into, bytes, "%.*s", (int)strcspn(at + length + 1, ","), at + length + 1);
            return;
        }
    }
}

extern char **environ;

static void start(struct player *player, const char *self, const char *library, const char *directory, const char *milliseconds,
                  int ready, int go)
{
    char preload[512], cache[512], limit[64], policy[64], force[64], ready_text[16], go_text[16];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", library);
    snprintf(cache, sizeof cache, "CUDA_DEVICE_MEMORY_SHARED_CACHE=%s/%s.cache", directory, player->tenant);
    snprintf(limit, sizeof limit, "CUDA_DEVICE_SM_LIMIT=%s", player->limit);
    snprintf(policy, sizeof policy, "GPU_CORE_UTILIZATION_POLICY=%s", player->policy);
    snprintf(force, sizeof force, "PUMICE_VGPU_ARBITER=%s", player->arbiter);
    snprintf(ready_text, sizeof ready_text, "%d", ready);
    snprintf(go_text, sizeof go_text, "%d", go);
    char locks[512];
    snprintf(locks, sizeof locks, "PUMICE_VGPU_LOCK_DIRECTORY=%s", directory);
    char *own[] = {preload, cache, limit, policy, force, locks};
    size_t used = strlen(library) > 0 ? sizeof own / sizeof *own : 0, inherited = 0;
    while (environ[inherited] != NULL)
        inherited++;
    char *env[used + inherited + 1]; /* the first of a name counts: own ones lead */
    memcpy(env, own, used * sizeof *env);
    memcpy(env + used, environ, (inherited + 1) * sizeof *env);
    char *arguments[] = {(char *)self, "worker", player->kernel, player->shape, player->start, (char *)milliseconds,
                         ready_text, go_text, player->streams, player->pause, NULL};
    int ends[2];
    must(pipe(ends), "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    must(posix_spawn(&player->pid, "/proc/self/exe", &actions, NULL, arguments, env), "posix_spawn");
    close(ends[1]);
    player->output = ends[0];
}

static void apply(const struct change *change, const char *directory)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s.cache", directory, change->tenant);
    int fd = open(path, O_RDWR);
    struct region *region = fd < 0 ? MAP_FAILED : mmap(NULL, REGION_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    must(region == MAP_FAILED, path);
    for (int i = 0; i < REGION_DEVICES && strcmp(change->kind, "change") == 0; i++)
        shared_set(&region->sm_limit[i], (uint64_t)change->value);
    if (strcmp(change->kind, "switch") == 0)
        shared_set(&region->utilization_switch, (int32_t)change->value);
    if (strcmp(change->kind, "recent") == 0)
        shared_set(&region->recent_kernel, (int32_t)change->value);
    if (strcmp(change->kind, "pulse") == 0)
        shared_set(&((struct region_ext *)((char *)region + REGION_EXT_OFFSET))->pulse, (uint64_t)change->value << 32 | change->at_ms);
    munmap(region, REGION_FILE_BYTES);
    close(fd);
}

static bool parse_change(const char *text, struct change *change)
{
    return sscanf(text, "%15[a-z]=%63[^:]:%lu:%ld", change->kind, change->tenant, (unsigned long *)&change->at_ms,
                  &change->value) == 4;
}

static uint64_t served(const struct machine_state *state, pid_t pid)
{
    for (unsigned i = 0; i < state->process_high; i++)
        if (state->processes[i].pid == (uint32_t)pid && state->processes[i].state == 2)
            return __atomic_load_n(&state->processes[i].accounts[0].served_ns, __ATOMIC_RELAXED);
    return 0;
}

/* Any NVML question about utilisation brings the card's time up to now. */
static void (*look)(void);
static int (*nvml_utilization)(void *, unsigned *);
static void *nvml_card;

static void look_by_nvml(void)
{
    unsigned rates[2];
    nvml_utilization(nvml_card, rates);
}

static const struct machine_state *open_machine(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    must(nvml == NULL, "libnvidia-ml.so.1");
    load_machine(nvml);
    must(((int (*)(void))need(nvml, "nvmlInit_v2"))(), "nvmlInit_v2");
    must(((int (*)(unsigned, void **))need(nvml, "nvmlDeviceGetHandleByIndex_v2"))(0, &nvml_card), "nvmlDeviceGetHandleByIndex_v2");
    nvml_utilization = (int (*)(void *, unsigned *))need(nvml, "nvmlDeviceGetUtilizationRates");
    look = look_by_nvml;
    const struct machine_state *state = ((struct machine_state * (*)(void)) need(nvml, "pumice_machine_state"))();
    must(state == NULL, "pumice_machine_state");
    return state;
}

int main(int argc, char **argv)
{
    if (argc > 7 && strcmp(argv[1], "worker") == 0)
        return worker(argv);
    if (argc < 5) {
        fprintf(stderr, "conduct LIBRARY DIRECTORY MILLISECONDS WORKER...\n");
        return 2;
    }
    static struct player players[WORKERS];
    static struct change changes[CHANGES];
    int count = 0, change_count = 0;
    const struct machine_state *state = open_machine();
    join_time();
    int ready[2], go[2];
    must(pipe(ready) | pipe(go), "pipe");
    for (int i = 4; i < argc; i++) {
        if (change_count < CHANGES && parse_change(argv[i], &changes[change_count])) {
            change_count++;
            continue;
        }
        must(count == WORKERS, "too many workers");
        struct player *player = &players[count++];
        take(player->tenant, sizeof player->tenant, argv[i], "tenant", "t");
        take(player->limit, sizeof player->limit, argv[i], "limit", "0");
        take(player->kernel, sizeof player->kernel, argv[i], "kernel", "1000000");
        take(player->shape, sizeof player->shape, argv[i], "shape", "async");
        take(player->policy, sizeof player->policy, argv[i], "policy", "force");
        take(player->start, sizeof player->start, argv[i], "start", "0");
        take(player->arbiter, sizeof player->arbiter, argv[i], "arbiter", "0");
        take(player->streams, sizeof player->streams, argv[i], "streams", "1");
        take(player->pause, sizeof player->pause, argv[i], "pause", "0");
        start(player, argv[0], argv[1], argv[2], argv[3], ready[1], go[0]);
    }
    char byte;
    close(ready[1]); /* so that a worker that fails ends the reading */
    for (int i = 0; i < count; i++)
        must(read(ready[0], &byte, 1) != 1, "a worker did not get ready");
    uint64_t begin = now_ns(), length_ms = strtoull(argv[3], NULL, 10);
    for (int i = 0; i < count; i++)
        must(write(go[1], &begin, sizeof begin) != (ssize_t)sizeof begin, "go");

    size_t samples = length_ms / SAMPLE_MS + 1;
    uint64_t *series = calloc(samples * (size_t)count, sizeof *series);
    for (size_t s = 0; s < samples; s++) {
        if (s + 1 == samples) /* a moment before the workers stop and disappear */
            sleep_until(begin + length_ms * 1000000 - 1000);
        else
            sleep_until(begin + s * SAMPLE_MS * 1000000);
        look();
        for (int i = 0; i < count; i++)
            series[(size_t)i * samples + s] = served(state, players[i].pid);
        for (int i = 0; i < change_count; i++)
            if (changes[i].at_ms == s * SAMPLE_MS)
                apply(&changes[i], argv[2]);
    }
    leave_time();
    printf("{\"sample_ms\": %d, \"workers\": [", SAMPLE_MS);
    int failed = 0;
    for (int i = 0; i < count; i++) {
        char launches[32] = "0";
        int status;
        ssize_t got = read(players[i].output, launches, sizeof launches - 1);
        launches[got > 0 ? got - 1 : 0] = '\0';
        waitpid(players[i].pid, &status, 0);
        failed |= status != 0;
        printf("%s{\"tenant\": \"%s\", \"launches\": %s, \"exit\": %d, \"served\": [", i ? ", " : "", players[i].tenant,
               launches[0] ? launches : "0", status);
        for (size_t s = 0; s < samples; s++)
            printf("%s%lu", s ? ", " : "", (unsigned long)series[(size_t)i * samples + s]);
        printf("]}");
    }
    printf("]}\n");
    return failed;
}
