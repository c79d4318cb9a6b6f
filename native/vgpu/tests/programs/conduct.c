/*
 * Runs workers under the library on an emulated machine and writes down what the machine saw.
 *
 *     conduct LIBRARY DIRECTORY MILLISECONDS WORKER...
 *     WORKER   tenant=NAME,limit=PERCENT,kernel=NS[,shape=async|sync|graph|cooperative|green|mixed|lognormal]
 *              [,policy=force|default|disable][,start=MS][,arbiter=1][,streams=N][,pause=NS][,burst=N][,copy=BYTES][,fill=BYTES]
 *              [,kinds=N][,modules=N]
 *              launches go round the streams, which in shape green are of a part of the card each; pause: after each launch, or after
 *              each N, for the program itself; copy, fill: to the card and in it, before each launch.
 *              mixed: kernels of a tenth, once and ten times the length in turn; lognormal: of lengths that are drawn, NS the median
 *              kinds: launches are of so many kinds in turn, by their number of threads and shared memory; modules: after so many
 *              launches the kernel is loaded anew.
 *     also     change=TENANT:MS:PERCENT (live), switch=TENANT:MS:VALUE, recent=TENANT:MS:VALUE, pulse=TENANT:MS:EVERY_MS (one beat),
 *              launches=PREFIX: each launch of worker N is written to PREFIX.N, as when it was asked for, when it returned and its
 *              length, three words of ns from the start on; sample=MS
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
#include <math.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <stdbool.h>

enum { WORKERS = 80, CHANGES = 32, SAMPLE_MS = 10, STREAMS = 16, THREADS = 32, MODULES = 128 };

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

/* How the conductor tells a worker what to do. */
#define TASK_FORMAT "%15s %lu %lu %lu %lu %lu %lu %lu %lu %lu %lu"
enum { TASK_WORDS = 11 };

struct task {
    char shape[16];
    uint64_t kernel_ns, start_ms, pause_ns, streams, burst, copy_bytes, fill_bytes, kinds, modules, number;
};

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
typedef int (*cooperative_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);

struct gpu {
    launch_fn launch;
    cooperative_fn cooperative;
    int (*synchronize)(void *);
    int (*graph_launch)(void *, void *);
    int (*copy)(unsigned long long, const void *, size_t, void *);
    int (*fill)(unsigned long long, unsigned char, size_t, void *);
    int (*load)(void **, const void *);
    int (*unload)(void *);
    int (*find)(void **, void *, const char *);
    void *function, *graph, *host, *modules[MODULES];
    unsigned long long memory;
    void *streams[STREAMS];
};

enum { GRAPH_NODES = 10 };

/* Code that is compiled while the program runs comes like this; of what is long done the oldest goes. */
static void load_kernel(struct gpu *gpu, uint64_t n)
{
    void **module = &gpu->modules[n % MODULES];
    if (*module != NULL)
        must(gpu->unload(*module), "cuModuleUnload");
    must(gpu->load(module, "pumice-kernel name=pumice_spin_ns ns=1\n"), "cuModuleLoadData");
    must(gpu->find(&gpu->function, *module, "pumice_spin_ns"), "cuModuleGetFunction");
}

/* Each number of threads and each size of shared memory is a kind of its own to the library. */
static int launch(const struct gpu *gpu, bool cooperative, unsigned kind, uint64_t ns, void *stream)
{
    void *parameters[] = {&ns};
    if (cooperative)
        return gpu->cooperative(gpu->function, 1, 1, 1, THREADS, 1, 1, 0, stream, parameters);
    unsigned shared = kind / THREADS % 1024 * 32;
    return gpu->launch(gpu->function, 1, 1, 1, THREADS * (1 + kind % THREADS), 1, 1, shared, stream, parameters, NULL);
}

static void make_graph(struct gpu *gpu, void *cuda, uint64_t ns)
{
    int (*begin)(void *, int) = (int (*)(void *, int))need(cuda, "cuStreamBeginCapture_v2");
    int (*end)(void *, void **) = (int (*)(void *, void **))need(cuda, "cuStreamEndCapture");
    int (*instantiate)(void **, void *, unsigned long long) =
        (int (*)(void **, void *, unsigned long long))need(cuda, "cuGraphInstantiateWithFlags");
    gpu->graph_launch = (int (*)(void *, void *))need(cuda, "cuGraphLaunch");
    void *graph = NULL;
    must(begin(gpu->streams[0], 0), "cuStreamBeginCapture");
    for (int i = 0; i < GRAPH_NODES; i++)
        must(launch(gpu, false, 0, ns, gpu->streams[0]), "captured launch");
    must(end(gpu->streams[0], &graph), "cuStreamEndCapture");
    must(instantiate(&gpu->graph, graph, 0), "cuGraphInstantiateWithFlags");
}

/* Each stream in a green context of its own, with its part of the card. */
static void make_parts(struct gpu *gpu, void *cuda, unsigned count)
{
    struct resource { int type; unsigned char internal[92]; unsigned sms, rest[11]; } all, parts[STREAMS];
    _Static_assert(sizeof all == 144, "as cuda.h has it");
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

static struct gpu open_gpu(void *cuda, struct task *task)
{
    struct gpu gpu = {0};
    void *context = NULL;
    must(((int (*)(unsigned))need(cuda, "cuInit"))(0), "cuInit");
    must(((int (*)(void **, int))need(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0), "cuDevicePrimaryCtxRetain");
    must(((int (*)(void *))need(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    gpu.load = (int (*)(void **, const void *))need(cuda, "cuModuleLoadData");
    gpu.unload = (int (*)(void *))need(cuda, "cuModuleUnload");
    gpu.find = (int (*)(void **, void *, const char *))need(cuda, "cuModuleGetFunction");
    load_kernel(&gpu, 0);
    task->kinds = task->kinds < 1 ? 1 : task->kinds;
    task->streams = task->streams < 1 ? 1 : task->streams > STREAMS ? STREAMS : task->streams;
    bool parts = strcmp(task->shape, "green") == 0;
    if (parts)
        make_parts(&gpu, cuda, (unsigned)task->streams);
    for (uint64_t i = 0; i < task->streams && !parts; i++)
        must(((int (*)(void **, unsigned))need(cuda, "cuStreamCreate"))(&gpu.streams[i], 1), "cuStreamCreate");
    gpu.launch = (launch_fn)need(cuda, "cuLaunchKernel");
    gpu.cooperative = (cooperative_fn)need(cuda, "cuLaunchCooperativeKernel");
    gpu.synchronize = (int (*)(void *))need(cuda, "cuStreamSynchronize");
    gpu.copy = (int (*)(unsigned long long, const void *, size_t, void *))need(cuda, "cuMemcpyHtoDAsync_v2");
    gpu.fill = (int (*)(unsigned long long, unsigned char, size_t, void *))need(cuda, "cuMemsetD8Async");
    size_t bytes = task->copy_bytes > task->fill_bytes ? task->copy_bytes : task->fill_bytes;
    if (bytes > 0)
        must(((int (*)(unsigned long long *, size_t))need(cuda, "cuMemAlloc_v2"))(&gpu.memory, bytes), "cuMemAlloc_v2");
    gpu.host = calloc(1, task->copy_bytes + 1);
    if (strcmp(task->shape, "graph") == 0)
        make_graph(&gpu, cuda, task->kernel_ns);
    return gpu;
}

/* The sum of twelve even draws is near enough to a normal one. */
static double normal(uint64_t *dice)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *dice = *dice * 6364136223846793005ull + 1442695040888963407ull;
        sum += (double)(*dice >> 11) / 9007199254740992.0;
    }
    return sum;
}

/* What launch number n of this shape does, and of which kind it is. */
static uint64_t length_of(const struct task *task, uint64_t n, uint64_t *dice, unsigned *kind)
{
    static const uint64_t tenths[] = {1, 10, 100};
    *kind = (unsigned)(n % task->kinds);
    if (strcmp(task->shape, "lognormal") == 0)
        return (uint64_t)((double)task->kernel_ns * exp(normal(dice)));
    if (strcmp(task->shape, "mixed") != 0)
        return task->kernel_ns;
    *kind = (unsigned)(n % 3);
    return task->kernel_ns * tenths[*kind] / 10;
}

/* One launch with what goes before and after it; its length. */
static uint64_t one(struct gpu *gpu, const struct task *task, uint64_t n, uint64_t *dice)
{
    void *stream = gpu->streams[n % task->streams];
    unsigned kind;
    if (task->modules > 0 && n % task->modules == 0)
        load_kernel(gpu, 1 + n / task->modules);
    uint64_t ns = length_of(task, n, dice, &kind);
    if (gpu->graph != NULL) {
        must(gpu->graph_launch(gpu->graph, stream), "cuGraphLaunch");
        return ns * GRAPH_NODES;
    }
    must(launch(gpu, strcmp(task->shape, "cooperative") == 0, kind, ns, stream), "launch");
    return ns;
}

/* worker TASK MILLISECONDS READY_FD GO_FD RECORD; RECORD: where launches are written, or nothing */
static int worker(char **argv)
{
    struct task task;
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (cuda == NULL || sscanf(argv[2], TASK_FORMAT, task.shape, &task.kernel_ns, &task.start_ms, &task.pause_ns, &task.streams,
                               &task.burst, &task.copy_bytes, &task.fill_bytes, &task.kinds, &task.modules, &task.number) != TASK_WORDS)
        return 2;
    load_machine(cuda);
    struct gpu gpu = open_gpu(cuda, &task);
    FILE *record = argv[6][0] != '\0' ? fopen(argv[6], "w") : NULL;
    join_time();
    char byte = 'r';
    uint64_t begin = 0, dice = task.number;
    if (write(atoi(argv[4]), &byte, 1) != 1 || read(atoi(argv[5]), &begin, sizeof begin) != (ssize_t)sizeof begin)
        return 2;
    uint64_t end = begin + strtoull(argv[3], NULL, 10) * 1000000, launches = 0;
    sleep_until(begin + task.start_ms * 1000000);
    for (; now_ns() < end; launches++) {
        if (task.copy_bytes > 0)
            must(gpu.copy(gpu.memory, gpu.host, task.copy_bytes, gpu.streams[launches % task.streams]), "cuMemcpyHtoDAsync");
        if (task.fill_bytes > 0)
            must(gpu.fill(gpu.memory, 1, task.fill_bytes, gpu.streams[launches % task.streams]), "cuMemsetD8Async");
        uint64_t asked = now_ns(), ns = one(&gpu, &task, launches, &dice);
        uint64_t row[] = {asked - begin, now_ns() - begin, ns};
        if (record != NULL)
            fwrite(row, sizeof row, 1, record);
        if (strcmp(task.shape, "sync") == 0)
            must(gpu.synchronize(gpu.streams[launches % task.streams]), "cuStreamSynchronize");
        if (task.pause_ns > 0 && (launches + 1) % task.burst == 0)
            sleep_until(now_ns() + task.pause_ns);
    }
    leave_time();
    printf("%lu\n", (unsigned long)launches);
    fflush(NULL);
    _exit(0); /* what is still queued is not waited for */
}

/* ---- the conductor ------------------------------------------------------------------------------------------------ */

struct player {
    char tenant[64], limit[16], policy[16], arbiter[8], task[256], record[4200];
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

/* The worker's part of the specification, in the order of TASK_FORMAT. */
static void take_task(char *into, size_t bytes, const char *spec, int number)
{
    static const char *const words[][2] = {{"shape", "async"}, {"kernel", "1000000"}, {"start", "0"}, {"pause", "0"},
                                           {"streams", "1"},   {"burst", "1"},        {"copy", "0"},  {"fill", "0"},
                                           {"kinds", "1"},     {"modules", "0"}};
    into[0] = '\0';
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char word[32];
        take(word, sizeof word, spec, words[i][0], words[i][1]);
        size_t used = strlen(into);
        snprintf(into + used, bytes - used, "%s ", word);
    }
    snprintf(into + strlen(into), bytes - strlen(into), "%d", number);
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
    char *arguments[] = {(char *)self, "worker", player->task, (char *)milliseconds, ready_text, go_text, player->record, NULL};
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

/* Work done for the process: copies too, where they take time. */
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
    if (argc == 7 && strcmp(argv[1], "worker") == 0)
        return worker(argv);
    if (argc < 5) {
        fprintf(stderr, "conduct LIBRARY DIRECTORY MILLISECONDS WORKER...\n");
        return 2;
    }
    static struct player players[WORKERS];
    static struct change changes[CHANGES];
    const char *prefix = NULL;
    uint64_t every_ms = SAMPLE_MS;
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
        if (sscanf(argv[i], "sample=%lu", (unsigned long *)&every_ms) == 1)
            continue;
        if (strncmp(argv[i], "launches=", 9) == 0) {
            prefix = argv[i] + 9;
            continue;
        }
        must(count == WORKERS, "too many workers");
        struct player *player = &players[count++];
        take(player->tenant, sizeof player->tenant, argv[i], "tenant", "t");
        take(player->limit, sizeof player->limit, argv[i], "limit", "0");
        take(player->policy, sizeof player->policy, argv[i], "policy", "force");
        take(player->arbiter, sizeof player->arbiter, argv[i], "arbiter", "0");
        take_task(player->task, sizeof player->task, argv[i], count - 1);
        if (prefix != NULL)
            snprintf(player->record, sizeof player->record, "%s.%d", prefix, count - 1);
        start(player, argv[0], argv[1], argv[2], argv[3], ready[1], go[0]);
    }
    char byte;
    close(ready[1]); /* so that a worker that fails ends the reading */
    for (int i = 0; i < count; i++)
        must(read(ready[0], &byte, 1) != 1, "a worker did not get ready");
    uint64_t begin = now_ns(), length_ms = strtoull(argv[3], NULL, 10);
    for (int i = 0; i < count; i++)
        must(write(go[1], &begin, sizeof begin) != (ssize_t)sizeof begin, "go");

    size_t samples = length_ms / every_ms + 1;
    uint64_t *series = calloc(samples * (size_t)count, sizeof *series);
    for (size_t s = 0; s < samples; s++) {
        if (s + 1 == samples) /* a moment before the workers stop and disappear */
            sleep_until(begin + length_ms * 1000000 - 1000);
        else
            sleep_until(begin + s * every_ms * 1000000);
        look();
        for (int i = 0; i < count; i++)
            series[(size_t)i * samples + s] = served(state, players[i].pid);
        for (int i = 0; i < change_count; i++)
            if (changes[i].at_ms == s * every_ms)
                apply(&changes[i], argv[2]);
    }
    leave_time();
    printf("{\"sample_ms\": %lu, \"workers\": [", (unsigned long)every_ms);
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
