/* Time on a card: fair shares, events, streams, virtual time. */
#include "check.h"

#define MS 1000000ull

static void shared_by(int processes, int kernels)
{
    fresh_machine("virtual=1");
    struct machine_state *m = NULL;
    int gate[2];
    CHECK(pipe(gate) == 0);
    for (int i = 0; i < processes; i++) {
        if (child())
            continue;
        char go;
        begin(0);
        CUfunction f = kernel("pumice-kernel name=k ns=10000000\n", "k");
        OK(pumice_machine_join());
        CHECK(write(gate[1], "r", 1) == 1); /* ready; time stands still until all have launched */
        while (pumice_machine_state()->settings_reserved[0] == 0)
            usleep(200);
        for (int n = 0; n < kernels; n++)
            OK(run(f, NULL));
        __atomic_add_fetch(&pumice_machine_state()->settings_reserved[1], 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&pumice_machine_state()->settings_reserved[1], __ATOMIC_SEQ_CST) < (uint64_t)processes)
            usleep(200);
        OK(cuCtxSynchronize());
        (void)go;
        OK(pumice_machine_leave());
        exit(0);
    }
    char ready;
    for (int i = 0; i < processes; i++)
        CHECK(read(gate[0], &ready, 1) == 1);
    m = pumice_machine_state();
    uint64_t start = pumice_machine_now_ns();
    m->settings_reserved[0] = 1;
    children_end(processes);
    uint64_t took = pumice_machine_now_ns() - start;
    pumice_machine_reap(NULL); /* a process that still had threads at its exit is only marked */
    EQUAL(took, (uint64_t)processes * (uint64_t)kernels * 10 * MS);
    EQUAL(m->history_sequence, processes);
    for (int i = 0; i < processes; i++)
        EQUAL(m->history[i].cards[0].busy_ns, (uint64_t)kernels * 10 * MS);
}

/* Each part runs in a process of its own: a process meets one machine. */
static void two_processes_share_a_card_fairly(void)
{
    shared_by(2, 100);
    drop_machine();
}

static void seven_processes_share_a_card_fairly(void)
{
    shared_by(7, 10);
    drop_machine();
}

static void events_take_the_time_of_the_kernels_between_them(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1500000\n", "k");
    enum { N = 1000 };
    static CUevent events[N + 1];
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    for (int i = 0; i <= N; i++) {
        OK(cuEventCreate(&events[i], 0));
        OK(cuEventRecord(events[i], stream)); /* more than fit the ring of marks: recording waits for room */
        if (i < N)
            OK(run(f, stream));
    }
    EQUAL(cuEventQuery(events[N]), 600);
    OK(cuStreamSynchronize(stream));
    for (int i = 0; i < N; i++) {
        float ms;
        OK(cuEventElapsedTime(&ms, events[i], events[i + 1]));
        CHECK(ms > 1.4999f && ms < 1.5001f);
    }
    float whole;
    OK(cuEventElapsedTime(&whole, events[0], events[N]));
    CHECK(whole > 1499.9f && whole < 1500.1f);
    drop_machine();
}

static void an_idle_gap_is_no_busy_time(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=3000000\n", "k");
    uint64_t start = pumice_machine_now_ns();
    OK(run(f, NULL));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 3 * MS);
    pumice_machine_sleep_ns(50 * MS);
    OK(run(f, NULL));
    EQUAL(cuStreamQuery(NULL), 600);
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 56 * MS);
    EQUAL(pumice_machine_state()->processes[0].accounts[0].served_ns, 6 * MS);
    drop_machine();
}

static void streams_overlap_where_the_machine_says_so(void)
{
    fresh_machine("virtual=1 overlap=1");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=4000000\n", "k");
    CUstream a, b;
    CUevent e;
    OK(cuStreamCreate(&a, 1));
    OK(cuStreamCreate(&b, 1));
    OK(cuEventCreate(&e, 2));
    uint64_t start = pumice_machine_now_ns();
    OK(run(f, a));
    OK(run(f, b));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 4 * MS);
    OK(run(f, a));
    OK(cuEventRecord(e, a));
    OK(cuStreamWaitEvent(b, e, 0));
    OK(run(f, b));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, 12 * MS);
    drop_machine();
}

static void a_kernel_that_spins_for_cycles_lasts_by_the_cards_clock(void)
{
    static const char name[] = "_ZN2at4cuda12_GLOBAL__N_11spin_kernelEl";
    fresh_machine("virtual=1");
    begin(0);
    char text[200];
    snprintf(text, sizeof text, "pumice-kernel name=%s\n", name);
    CUfunction f = kernel(text, name);
    int64_t cycles[] = {1410 * 5000, 0, -1}; /* the first: 5 ms at 1410 MHz */
    for (int i = 0; i < 3; i++) {
        uint64_t start = pumice_machine_now_ns();
        OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&cycles[i]}, NULL));
        OK(cuCtxSynchronize());
        EQUAL(pumice_machine_now_ns() - start, i == 0 ? 5 * MS : 0);
    }
    drop_machine();
}

typedef struct { char bytes[64]; } EventHandle;
CUresult cuIpcGetEventHandle(EventHandle *, CUevent);
CUresult cuIpcOpenEventHandle(CUevent *, EventHandle);
enum { SHARED_EVENT = 6 }; /* between processes, without timing */

/* Each waits for the work of the other; time stands still until somebody waits on the machine. */
static void an_event_of_two_processes_is_what_either_recorded_last(void)
{
    fresh_machine("virtual=1");
    int down[2], up[2];
    char word;
    EventHandle h;
    CUevent e;
    CUstream stream;
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    pid_t other = child();
    if (other == 0) {
        begin(0);
        CUfunction f = kernel("pumice-kernel name=k ns=7000000\n", "k");
        OK(cuStreamCreate(&stream, 1));
        CHECK(read(down[0], &h, sizeof h) == sizeof h);
        OK(cuIpcOpenEventHandle(&e, h));
        EQUAL(cuIpcGetEventHandle(&h, e), 1);
        EQUAL(cuEventElapsedTime(&(float){0}, e, e), 400);
        EQUAL(cuEventQuery(e), 600);
        uint64_t start = pumice_machine_now_ns();
        OK(cuStreamWaitEvent(stream, e, 0));
        EQUAL(pumice_machine_now_ns() - start, 10 * MS);
        EQUAL(cuEventQuery(e), 0);
        OK(run(f, stream));
        OK(cuEventRecord(e, stream));
        CHECK(write(up[1], "r", 1) == 1);
        CHECK(read(down[0], &word, 1) == 1);
        f = kernel("pumice-kernel name=l ns=1000000000000\n", "l");
        OK(run(f, stream));
        OK(cuEventRecord(e, stream));
        CHECK(write(up[1], "l", 1) == 1);
        pause();
    }
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=10000000\n", "k");
    OK(cuEventCreate(&e, 2));
    EQUAL(cuIpcGetEventHandle(&h, e), 1); /* not made for that */
    OK(cuEventCreate(&e, SHARED_EVENT));
    OK(run(f, NULL));
    OK(cuEventRecord(e, NULL));
    OK(cuIpcGetEventHandle(&h, e));
    CUevent own;
    EQUAL(cuIpcOpenEventHandle(&own, h), 201);
    CHECK(write(down[1], &h, sizeof h) == sizeof h && read(up[0], &word, 1) == 1);
    EQUAL(cuEventQuery(e), 600);
    uint64_t start = pumice_machine_now_ns();
    OK(cuEventSynchronize(e));
    EQUAL(pumice_machine_now_ns() - start, 7 * MS);
    OK(cuEventRecord(e, NULL)); /* one's own again */
    EQUAL(cuEventQuery(e), 0);
    CHECK(write(down[1], "g", 1) == 1 && read(up[0], &word, 1) == 1);
    EQUAL(cuEventQuery(e), 600);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, NULL, 0) == other);
    OK(cuEventSynchronize(e)); /* what it left undone nobody waits for */
    drop_machine();
}

static void the_event_of_a_process_that_ended_it_is_not_to_be_had(void)
{
    fresh_machine("virtual=1");
    int down[2], up[2];
    char word;
    EventHandle h, again;
    CUevent e;
    CHECK(pipe(down) == 0 && pipe(up) == 0);
    if (child() == 0) {
        begin(0);
        CHECK(read(down[0], &h, sizeof h) == sizeof h);
        OK(cuIpcOpenEventHandle(&e, h));
        CHECK(write(up[1], "o", 1) == 1 && read(down[0], &again, sizeof again) == sizeof again);
        OK(cuEventRecord(e, NULL)); /* nobody's any more: not the next one's that stands in its place */
        EQUAL(cuIpcOpenEventHandle(&e, h), 205);
        OK(cuIpcOpenEventHandle(&e, again));
        EQUAL(cuEventQuery(e), 600);
        h.bytes[0] ^= 1;
        EQUAL(cuIpcOpenEventHandle(&e, h), 1);
        CHECK(write(up[1], "d", 1) == 1);
        exit(0);
    }
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=10000000\n", "k");
    OK(cuEventCreate(&e, SHARED_EVENT));
    OK(cuIpcGetEventHandle(&h, e));
    CHECK(write(down[1], &h, sizeof h) == sizeof h && read(up[0], &word, 1) == 1);
    OK(cuEventDestroy_v2(e));
    OK(cuEventCreate(&e, SHARED_EVENT));
    OK(cuIpcGetEventHandle(&again, e));
    OK(run(f, NULL));
    OK(cuEventRecord(e, NULL));
    CHECK(write(down[1], &again, sizeof again) == sizeof again && read(up[0], &word, 1) == 1);
    children_end(1);
    drop_machine();
}

static uint64_t called_at;

static void note_time(void *arg)
{
    (void)arg;
    called_at = pumice_machine_now_ns();
}

static void a_host_function_runs_when_its_stream_is_there(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=7000000\n", "k");
    uint64_t start = pumice_machine_now_ns();
    OK(run(f, NULL));
    OK(cuLaunchHostFunc(NULL, note_time, NULL));
    OK(cuStreamSynchronize(NULL));
    CHECK(called_at >= start + 7 * MS);
    drop_machine();
}

static void a_spin_kernel_lasts_as_long_as_it_is_told(void)
{
    fresh_machine("virtual=1");
    begin(0);
    CUfunction f = kernel(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry pumice_spin_ns(.param .u64 n)\n{\n ret;\n}\n",
                          "pumice_spin_ns");
    uint64_t ns = 123456789;
    void *params[] = {&ns};
    uint64_t start = pumice_machine_now_ns();
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, ns);
    CUfunction named = kernel("pumice-kernel name=gemm_250us\n", "gemm_250us");
    OK(run(named, NULL));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, ns + 250000);
    drop_machine();
}

static void a_killed_participant_does_not_hold_the_clock(void)
{
    fresh_machine("virtual=1");
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t pid = child();
    if (pid == 0) {
        OK(pumice_machine_join());
        CHECK(write(ready[1], "r", 1) == 1);
        pause(); /* joined, and never waits in machine time */
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    uint64_t start = pumice_machine_now_ns();
    if (child() == 0) {
        OK(pumice_machine_sleep_ns(5 * MS));
        exit(0);
    }
    usleep(50000);
    EQUAL(pumice_machine_now_ns(), start);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    children_end(1);
    EQUAL(pumice_machine_now_ns(), start + 5 * MS);
    drop_machine();
}

static void a_killed_process_leaves_its_work_undone(void)
{
    fresh_machine("virtual=1");
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t pid = child();
    if (pid == 0) {
        begin(0);
        OK(run(kernel("pumice-kernel name=k ns=3600000000000\n", "k"), NULL));
        CHECK(write(ready[1], "r", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    usleep(60000); /* the lane looks for the dead every 50 ms of real time */
    begin(0);
    uint64_t start = pumice_machine_now_ns();
    OK(run(kernel("pumice-kernel name=k ns=1000000\n", "k"), NULL));
    OK(cuCtxSynchronize());
    EQUAL(pumice_machine_now_ns() - start, MS);
    drop_machine();
}

static void real_time_passes_really(void)
{
    fresh_machine("");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=20000000\n", "k");
    uint64_t start = pumice_machine_now_ns();
    OK(run(f, NULL));
    CHECK(pumice_machine_now_ns() - start < 20 * MS);
    OK(cuCtxSynchronize());
    CHECK(pumice_machine_now_ns() - start >= 20 * MS);
    drop_machine();
}

static void a_full_queue_makes_the_launch_wait(void)
{
    fresh_machine("virtual=1 depth=4");
    begin(0);
    CUfunction f = kernel("pumice-kernel name=k ns=1000000\n", "k");
    uint64_t start = pumice_machine_now_ns();
    for (int i = 0; i < 10; i++)
        OK(run(f, NULL));
    EQUAL(pumice_machine_now_ns() - start, 6 * MS); /* six had to end before the tenth found room */
    drop_machine();
}

int main(void)
{
    apart(two_processes_share_a_card_fairly);
    apart(seven_processes_share_a_card_fairly);
    apart(events_take_the_time_of_the_kernels_between_them);
    apart(an_idle_gap_is_no_busy_time);
    apart(a_kernel_that_spins_for_cycles_lasts_by_the_cards_clock);
    apart(an_event_of_two_processes_is_what_either_recorded_last);
    apart(the_event_of_a_process_that_ended_it_is_not_to_be_had);
    apart(streams_overlap_where_the_machine_says_so);
    apart(a_host_function_runs_when_its_stream_is_there);
    apart(a_spin_kernel_lasts_as_long_as_it_is_told);
    apart(a_killed_participant_does_not_hold_the_clock);
    apart(a_killed_process_leaves_its_work_undone);
    apart(real_time_passes_really);
    apart(a_full_queue_makes_the_launch_wait);
    return 0;
}
