/* NPUs: what the driver makes and refuses, killed and racing callers, and a program that has one slice. The prototypes are our own,
 * by Huawei's DCMI API reference, and CANN's acl.h. */
#include "check.h"

#include <machine/npu.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct create_in {
    unsigned id, group;
    char template[32];
    unsigned char reserved[64];
};
struct create_out {
    unsigned id, bus, device, function, group;
    unsigned char reserved[32];
};
struct totals {
    unsigned count, ids[32];
    unsigned char rest[360 - 4 * 33];
};
int dcmi_init(void);
int dcmi_get_card_list(int *, int *, int);
int dcmi_get_device_info(int, int, int, unsigned, void *, unsigned *);
int dcmi_create_vdevice(int, int, struct create_in *, struct create_out *);
int dcmi_set_destroy_vdevice(int, int, unsigned);
int pumice_npu_use(int, int, unsigned, uint64_t);
int aclInit(const char *);
int aclrtGetDeviceCount(uint32_t *);
int aclrtSetDevice(int32_t);
int aclrtResetDevice(int32_t);
int aclrtMalloc(void **, size_t, int);
int aclrtFree(void *);
int aclrtGetMemInfo(int, size_t *, size_t *);
int aclrtCreateStream(void **);
int aclrtDestroyStream(void *);
int aclrtSynchronizeStream(void *);
int pumice_npu_launch(void *, uint64_t);

enum { BAD = -8001, FORBIDDEN = -8002, NO_CHIP = -8007, NOT_READY = -8012, BUSY = -8020 };
#define MIB (1ull << 20)

/* A 310P3 as Huawei's table of 310P templates, has it; by the order of enum npu_unit. */
static const struct npu_size WHOLE = {8, 7, 24576, {16, 8, 12, 12, 0, 3}};
static const struct npu_template TEMPLATES[] = {
    {"vir01", {1, 1, 3072, {2, 1, 1, 1, 0, 0}}},          {"vir02", {2, 2, 6144, {4, 2, 3, 3, 0, 1}}},
    {"vir02_1c", {2, 1, 6144, {4, 2, 3, 3, 0, 0}}},       {"vir04", {4, 4, 12288, {8, 4, 6, 6, 0, 2}}},
    {"vir04_3c", {4, 3, 12288, {8, 4, 6, 6, 0, 1}}},      {"vir04_4c_dvpp", {4, 4, 12288, {16, 8, 12, 12, 0, 3}}},
    {"vir04_3c_ndvpp", {4, 3, 12288, {0, 0, 0, 0, 0, 0}}},
};
#define KINDS (sizeof TEMPLATES / sizeof *TEMPLATES)

static struct npu_state *state;

static void fresh_npus(unsigned chips)
{
    char path[4096];
    fresh_machine("");
    snprintf(path, sizeof path, "%.4000s/npus", getenv("PUMICE_MACHINE"));
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    CHECK(fd >= 0 && ftruncate(fd, sizeof *state) == 0);
    state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(state != MAP_FAILED);
    close(fd);
    state->version = NPU_VERSION;
    state->size = sizeof *state;
    state->chip_count = chips;
    for (unsigned c = 0; c < chips; c++) {
        struct npu_chip *chip = &state->chips[c];
        strcpy(chip->name, "310P3");
        chip->card = chip->physical = c;
        chip->groups = 4, chip->grouped = 1, chip->slices_most = 8;
        chip->size = WHOLE;
        chip->template_count = KINDS;
        memcpy(chip->templates, TEMPLATES, sizeof TEMPLATES);
    }
    state->magic = NPU_MAGIC;
    OK(dcmi_init());
}

static int make(int card, const char *template, unsigned *id)
{
    struct create_in in = {.id = NPU_ANY, .group = NPU_ANY};
    struct create_out out;
    strcpy(in.template, template);
    int code = dcmi_create_vdevice(card, 0, &in, &out);
    if (!code)
        *id = out.id;
    return code;
}

static unsigned count(int card)
{
    struct totals found;
    unsigned size = sizeof found;
    OK(dcmi_get_device_info(card, 0, 52, 1, &found, &size));
    return found.count;
}

/* What is there by the state alone: no unit beyond the chip's, no vGroup that is none, no id twice. */
static void sound(const struct npu_chip *chip)
{
    struct npu_size sum = {0};
    for (unsigned i = 0; i < NPU_SLICES; i++) {
        const struct npu_slice *s = &chip->slices[i];
        if (!s->used)
            continue;
        CHECK(s->template < KINDS && s->group < 4 && s->id == 100 + 16 * chip->physical + i);
        const struct npu_size *t = &TEMPLATES[s->template].size;
        sum.cores += t->cores, sum.cpus += t->cpus, sum.memory_mib += t->memory_mib;
        for (unsigned u = 0; u < NPU_UNITS; u++)
            sum.media[u] += t->media[u];
    }
    CHECK(sum.cores <= WHOLE.cores && sum.cpus <= WHOLE.cpus && sum.memory_mib <= WHOLE.memory_mib);
    for (unsigned u = 0; u < NPU_UNITS; u++)
        CHECK(sum.media[u] <= WHOLE.media[u]);
}

static bool fits(const struct npu_chip *chip, const struct npu_size *more)
{
    struct npu_size sum = *more;
    unsigned groups = 0;
    for (unsigned i = 0; i < NPU_SLICES; i++) {
        if (!chip->slices[i].used)
            continue;
        const struct npu_size *t = &TEMPLATES[chip->slices[i].template].size;
        groups |= 1u << chip->slices[i].group;
        sum.cores += t->cores, sum.cpus += t->cpus, sum.memory_mib += t->memory_mib;
        for (unsigned u = 0; u < NPU_UNITS; u++)
            sum.media[u] += t->media[u];
    }
    bool room = sum.cores <= WHOLE.cores && sum.cpus <= WHOLE.cpus && sum.memory_mib <= WHOLE.memory_mib;
    for (unsigned u = 0; u < NPU_UNITS; u++)
        room &= sum.media[u] <= WHOLE.media[u];
    unsigned used = (unsigned)__builtin_popcount(groups);
    return room && !(used == 3 && more->cores >= 4) && !(used == 4 && more->cores >= 2); /* Volcano pkg/scheduler/api/devices/ascend/mindcluster */
}

static void a_chip_takes_what_its_units_hold_and_nothing_else(void)
{
    fresh_npus(1);
    struct npu_chip *chip = &state->chips[0];
    unsigned ids[NPU_SLICES], held = 0, made = 0, refused = 0;
    srand(7);
    for (int step = 0; step < 5000; step++) {
        if (held && rand() % 5 < 2) {
            unsigned at = (unsigned)rand() % held;
            OK(dcmi_set_destroy_vdevice(0, 0, ids[at]));
            ids[at] = ids[--held];
        } else {
            unsigned kind = (unsigned)rand() % KINDS;
            bool room = held < 8 && fits(chip, &TEMPLATES[kind].size);
            EQUAL(make(0, TEMPLATES[kind].name, &ids[held]), room ? 0 : BAD);
            held += room;
            made += room;
            refused += !room;
        }
        EQUAL(count(0), held);
        sound(chip);
    }
    CHECK(made > 500 && refused > 500);
    drop_machine();
}

static void what_cannot_be_meant_is_refused_and_changes_nothing(void)
{
    fresh_npus(2);
    struct create_in in = {.id = NPU_ANY, .group = NPU_ANY, .template = "vir01"};
    struct create_out out;
    unsigned id, size = 359;
    struct totals found;
    EQUAL(dcmi_create_vdevice(0, 0, NULL, &out), BAD);
    EQUAL(dcmi_create_vdevice(0, 0, &in, NULL), BAD);
    EQUAL(dcmi_create_vdevice(2, 0, &in, &out), NO_CHIP);
    EQUAL(dcmi_create_vdevice(-1, 0, &in, &out), NO_CHIP);
    EQUAL(dcmi_create_vdevice(0, 1, &in, &out), NO_CHIP);
    EQUAL(make(0, "vir99", &id), BAD);
    EQUAL(make(0, "", &id), BAD);
    memset(in.template, 'v', sizeof in.template); /* no end */
    EQUAL(dcmi_create_vdevice(0, 0, &in, &out), BAD);
    in = (struct create_in){.id = NPU_ANY, .group = 4, .template = "vir01"};
    EQUAL(dcmi_create_vdevice(0, 0, &in, &out), BAD);
    in = (struct create_in){.id = 116, .group = NPU_ANY, .template = "vir01"}; /* the other chip's */
    EQUAL(dcmi_create_vdevice(0, 0, &in, &out), BAD);
    EQUAL(dcmi_get_device_info(0, 0, 52, 1, &found, &size), BAD);
    EQUAL(dcmi_get_device_info(0, 0, 52, 1, NULL, &size), BAD);
    EQUAL(dcmi_get_device_info(0, 0, 52, 1, &found, NULL), BAD);
    EQUAL(dcmi_set_destroy_vdevice(0, 0, 100), BAD);
    int cards[1], many = 0;
    OK(dcmi_get_card_list(&many, cards, 1)); /* a short list is not written beyond */
    EQUAL(many, 1);
    EQUAL(count(0) + count(1), 0);
    in = (struct create_in){.id = 103, .group = 2, .template = "vir01"};
    OK(dcmi_create_vdevice(0, 0, &in, &out));
    CHECK(out.id == 103 && out.group == 2);
    EQUAL(dcmi_create_vdevice(0, 0, &in, &out), BAD); /* that id is taken */
    OK(pumice_npu_use(0, 0, 103, 0xabc));
    EQUAL(dcmi_set_destroy_vdevice(0, 0, 103), BUSY);
    OK(pumice_npu_use(0, 0, 103, 0));
    OK(dcmi_set_destroy_vdevice(0, 0, 103));
    state->chips[1].gone = 1;
    EQUAL(make(1, "vir01", &id), NO_CHIP);
    setenv("ASCEND_VISIBLE_DEVICES", "0", 1);
    EQUAL(make(0, "vir01", &id), FORBIDDEN); /* out of a container */
    unsetenv("ASCEND_VISIBLE_DEVICES");
    drop_machine();
}

static void a_caller_that_is_killed_leaves_whole_slices_or_none(void)
{
    fresh_npus(1);
    static const char *const calls[] = {"dcmi_create_vdevice", "dcmi_set_destroy_vdevice"};
    for (unsigned round = 0; round < 40; round++) {
        bool destroys = round & 1;
        unsigned crash = 1 + (round >> 1 & 1), id = 0, before;
        memset(state->faults, 0, sizeof state->faults);
        if (destroys)
            OK(make(0, "vir01", &id));
        before = count(0);
        struct npu_fault *f = &state->faults[0];
        strcpy(f->function, calls[destroys]);
        f->first = 1, f->crash = crash, f->used = 1;
        pid_t pid = child();
        if (pid == 0) {
            unsigned made;
            _exit(destroys ? dcmi_set_destroy_vdevice(0, 0, id) != 0 : make(0, "vir01", &made) != 0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        memset(state->faults, 0, sizeof state->faults);
        EQUAL(count(0), (int)before + (crash == 2) * (destroys ? -1 : 1));
        sound(&state->chips[0]);
        for (unsigned i = 0; i < NPU_SLICES; i++)
            if (state->chips[0].slices[i].used)
                OK(dcmi_set_destroy_vdevice(0, 0, state->chips[0].slices[i].id));
    }
    drop_machine();
}

static void *churn(void *seed)
{
    unsigned dice = (unsigned)(uintptr_t)seed, id;
    for (int step = 0; step < 300; step++) {
        int card = (int)(rand_r(&dice) & 1);
        if (make(card, TEMPLATES[(unsigned)rand_r(&dice) % KINDS].name, &id) == 0)
            OK(dcmi_set_destroy_vdevice(card, 0, id));
    }
    return NULL;
}

static void threads_and_processes_at_once_never_give_a_unit_away_twice(void)
{
    fresh_npus(2);
    for (int process = 0; process < 3; process++)
        if (child() == 0) {
            pthread_t threads[3];
            for (uintptr_t t = 0; t < 3; t++)
                CHECK(pthread_create(&threads[t], NULL, churn, (void *)(t + 10u * (unsigned)process + 1)) == 0);
            for (int t = 0; t < 3; t++)
                pthread_join(threads[t], NULL);
            _exit(0);
        }
    int cards[2], many;
    for (int look = 0; look < 200; look++)
        OK(dcmi_get_card_list(&many, cards, 2));
    children_end(3);
    EQUAL(count(0) + count(1), 0);
    drop_machine();
}

static void a_program_sees_its_slice_and_has_its_memory_to_the_last_byte(void)
{
    fresh_npus(1);
    unsigned id, other;
    OK(make(0, "vir02", &id));
    OK(make(0, "vir01", &other));
    char word[16];
    snprintf(word, sizeof word, "%u", id);
    setenv("ASCEND_VISIBLE_DEVICES", word, 1);
    setenv("ASCEND_RUNTIME_OPTIONS", "VIRTUAL", 1);
    uint32_t devices;
    EQUAL(aclrtGetDeviceCount(&devices), 100001); /* not initialised */
    OK(aclInit(NULL));
    EQUAL(aclInit(NULL), 100002);
    OK(aclrtGetDeviceCount(&devices));
    EQUAL(devices, 1);
    void *block, *more, *stream;
    EQUAL(aclrtMalloc(&block, 1, 0), 107002); /* no device yet */
    EQUAL(aclrtSetDevice(1), 107001);
    EQUAL(aclrtSetDevice(-1), 107001);
    OK(aclrtSetDevice(0));
    size_t left, all;
    OK(aclrtGetMemInfo(0, &left, &all));
    CHECK(left == all && all == 6144 * MIB);
    EQUAL(aclrtMalloc(&block, 0, 0), 107000);
    EQUAL(aclrtMalloc(NULL, 1, 0), 107000);
    EQUAL(aclrtMalloc(&block, SIZE_MAX, 0), 207001);
    EQUAL(aclrtMalloc(&block, all + 1, 0), 207001);
    OK(aclrtMalloc(&block, all, 0));
    EQUAL(aclrtMalloc(&more, 1, 0), 207001);
    OK(aclrtGetMemInfo(0, &left, &all));
    EQUAL(left, 0);
    EQUAL(aclrtFree(&left), 107000); /* no block of ours */
    OK(aclrtFree(block));
    OK(aclrtCreateStream(&stream));
    OK(pumice_npu_launch(stream, 1000));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(stream));
    OK(aclrtMalloc(&block, MIB, 0));
    unsetenv("ASCEND_VISIBLE_DEVICES");
    EQUAL(dcmi_set_destroy_vdevice(0, 0, id), BUSY); /* a process has it */
    setenv("ASCEND_VISIBLE_DEVICES", word, 1);
    OK(aclrtResetDevice(0));
    EQUAL(aclrtResetDevice(0), 107001);
    unsetenv("ASCEND_VISIBLE_DEVICES");
    unsetenv("ASCEND_RUNTIME_OPTIONS");
    OK(dcmi_set_destroy_vdevice(0, 0, id));
    drop_machine();
}

static void processes_share_a_slice_and_the_killed_give_theirs_back(void)
{
    fresh_npus(1);
    unsigned id;
    OK(make(0, "vir01", &id));
    setenv("ASCEND_VISIBLE_DEVICES", "100", 1);
    setenv("ASCEND_RUNTIME_OPTIONS", "VIRTUAL", 1);
    OK(aclInit(NULL));
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    pid_t pid = child();
    if (pid == 0) {
        void *block;
        OK(aclrtSetDevice(0));
        OK(aclrtMalloc(&block, 3000 * MIB, 0));
        CHECK(write(pipes[1], "x", 1) == 1);
        pause();
    }
    char told;
    CHECK(read(pipes[0], &told, 1) == 1);
    void *block;
    OK(aclrtSetDevice(0));
    EQUAL(aclrtMalloc(&block, 73 * MIB, 0), 207001);
    OK(aclrtMalloc(&block, 72 * MIB, 0));
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    void *more;
    OK(aclrtMalloc(&more, 3000 * MIB, 0));
    state->chips[0].slices[0].used = 0; /* a reset took it from under us */
    EQUAL(aclrtMalloc(&more, 1, 0), 507008);
    OK(aclrtFree(block));
    unsetenv("ASCEND_VISIBLE_DEVICES");
    unsetenv("ASCEND_RUNTIME_OPTIONS");
    drop_machine();
}

static void without_a_machine_nothing_is_ready(void)
{
    setenv("PUMICE_MACHINE", "/nonexistent", 1);
    unsigned id;
    EQUAL(dcmi_init(), NOT_READY);
    EQUAL(make(0, "vir01", &id), NOT_READY);
    EQUAL(aclInit(NULL), 507000);
}

int main(void)
{
    apart(without_a_machine_nothing_is_ready);
    apart(a_chip_takes_what_its_units_hold_and_nothing_else);
    apart(what_cannot_be_meant_is_refused_and_changes_nothing);
    apart(a_caller_that_is_killed_leaves_whole_slices_or_none);
    apart(threads_and_processes_at_once_never_give_a_unit_away_twice);
    apart(a_program_sees_its_slice_and_has_its_memory_to_the_last_byte);
    apart(processes_share_a_slice_and_the_killed_give_theirs_back);
    return 0;
}
