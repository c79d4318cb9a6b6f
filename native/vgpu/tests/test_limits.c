/* The grammar and the precedence of the limit variables (HAMi-core src). */
#include "check.h"
#include "core/config.h"
#include "core/granted.h"
#include "core/log.h"

#include <sys/resource.h>
#include <unistd.h>

static void each_spelling_of_bytes(void)
{
    static const struct {
        const char *text;
        enum limit_verdict verdict;
        uint64_t bytes;
    } rows[] = {
        {NULL, LIMIT_ABSENT, 0},
        {"", LIMIT_ABSENT, 0},
        {"  ", LIMIT_ABSENT, 0},
        {"0", LIMIT_GOOD, 0},
        {"3000m", LIMIT_GOOD, 3000ull << 20},
        {"3g", LIMIT_GOOD, 3ull << 30},
        {" 3G ", LIMIT_GOOD, 3ull << 30},
        {"2GB", LIMIT_GOOD, 2ull << 30},
        {"2Gi", LIMIT_GOOD, 2ull << 30},
        {"2GiB", LIMIT_GOOD, 2ull << 30},
        {"1t", LIMIT_GOOD, 1ull << 40},
        {"512k", LIMIT_GOOD, 512ull << 10},
        {"17b", LIMIT_GOOD, 17},
        {"1.5g", LIMIT_GOOD, 3ull << 29},
        {"0.1k", LIMIT_GOOD, 102},
        {"0.9999999999999999999999k", LIMIT_GOOD, 1023},
        {"010m", LIMIT_GOOD, 10ull << 20},
        {"0x10m", LIMIT_GOOD, 16ull << 20},
        {"18446744073709551615", LIMIT_GOOD, UINT64_MAX},
        {"18446744073709551616", LIMIT_BAD, 0},
        {"17179869184g", LIMIT_BAD, 0},
        {"-1", LIMIT_BAD, 0},
        {"+1", LIMIT_BAD, 0},
        {"3gg", LIMIT_BAD, 0},
        {"g", LIMIT_BAD, 0},
        {"1.", LIMIT_BAD, 0},
        {".5g", LIMIT_BAD, 0},
        {"0x", LIMIT_BAD, 0},
        {"3 Gi", LIMIT_BAD, 0},
        {"3g!", LIMIT_BAD, 0},
        {"50%", LIMIT_BAD, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        uint64_t bytes = 0;
        enum limit_verdict verdict = parse_bytes(rows[i].text, &bytes);
        if (verdict != rows[i].verdict || (verdict == LIMIT_GOOD && bytes != rows[i].bytes))
            fprintf(stderr, "row %zu: %s\n", i, rows[i].text ? rows[i].text : "(unset)");
        CHECK_EQUAL(verdict, rows[i].verdict);
        if (verdict == LIMIT_GOOD)
            CHECK(bytes == rows[i].bytes);
    }
}

static void each_spelling_of_percent(void)
{
    uint64_t percent = 0;
    CHECK(parse_percent("50", &percent) == LIMIT_GOOD && percent == 50);
    CHECK(parse_percent(" 25 % ", &percent) == LIMIT_GOOD && percent == 25);
    CHECK(parse_percent("100", &percent) == LIMIT_GOOD && percent == 100);
    CHECK(parse_percent("", &percent) == LIMIT_ABSENT);
    CHECK(parse_percent("-5", &percent) == LIMIT_BAD);
    CHECK(parse_percent("50m", &percent) == LIMIT_BAD);
    CHECK(parse_percent("half", &percent) == LIMIT_BAD);
}

static const char *const *environment;

static const char *look_up(const char *name)
{
    for (const char *const *at = environment; at[0] != NULL; at += 2)
        if (strcmp(at[0], name) == 0)
            return at[1];
    return NULL;
}

static struct config read_from(const char *const *pairs)
{
    struct config config;
    environment = pairs;
    config_read(&config, look_up);
    return config;
}

#define ENVIRONMENT(...) read_from((const char *const[]){__VA_ARGS__, NULL})

static void the_own_variable_comes_before_the_general_one(void)
{
    struct config config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT", "4g", "CUDA_DEVICE_MEMORY_LIMIT_0", "3g",
                                       "CUDA_DEVICE_SM_LIMIT", "30", "CUDA_DEVICE_SM_LIMIT_1", "60");
    CHECK(config.memory_limit[0] == 3ull << 30);
    CHECK(config.memory_limit[1] == 4ull << 30);
    CHECK(config.memory_limit[15] == 4ull << 30);
    CHECK_EQUAL(config.sm_limit[0], 30);
    CHECK_EQUAL(config.sm_limit[1], 60);
}

static void nothing_said_is_unlimited(void)
{
    struct config config = ENVIRONMENT("UNRELATED", "1");
    CHECK_EQUAL(config.memory_limit[0], 0);
    CHECK_EQUAL(config.sm_limit[0], 100);
    CHECK_EQUAL(config.priority, 1);
    CHECK_EQUAL(config.policy, POLICY_DEFAULT);
    CHECK(!config.any_memory_variable && !config.any_sm_variable && !config.oversubscribe);
}

static void zero_inherits(void)
{
    struct config config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT", "2g", "CUDA_DEVICE_MEMORY_LIMIT_0", "0",
                                       "CUDA_DEVICE_SM_LIMIT", "0");
    CHECK(config.memory_limit[0] == 2ull << 30);
    CHECK_EQUAL(config.sm_limit[0], 100);
}

static void a_bad_memory_value_falls_to_the_next_source(void)
{
    struct config config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT", "2g", "CUDA_DEVICE_MEMORY_LIMIT_0", "-1");
    CHECK(config.memory_limit[0] == 2ull << 30);
}

static void a_bad_memory_value_without_another_source_gives_nothing(void)
{
    struct config config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT", "lots");
    CHECK_EQUAL(config.memory_limit[0], 1);
    CHECK_EQUAL(config.memory_limit[REGION_DEVICES - 1], 1);
    config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT_0", "-3g");
    CHECK_EQUAL(config.memory_limit[0], 1);
    config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT_0", "-3g", "CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
    CHECK(config.memory_limit[0] == 2ull << 30);
}

static void a_bad_core_value_fails_open(void)
{
    struct config config = ENVIRONMENT("CUDA_DEVICE_SM_LIMIT", "many");
    CHECK_EQUAL(config.sm_limit[0], 100);
}

static void a_device_nobody_spoke_of_gets_the_smallest_limit_given(void)
{
    struct config config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT_0", "3g", "CUDA_DEVICE_MEMORY_LIMIT_1", "2g");
    CHECK(config.memory_limit[0] == 3ull << 30);
    CHECK(config.memory_limit[2] == 2ull << 30);
    config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT_0", "3g", "CUDA_DEVICE_MEMORY_LIMIT_1", "0");
    CHECK_EQUAL(config.memory_limit[1], 0);
}

static void the_priority_is_never_outside_what_monitors_index(void)
{
    CHECK_EQUAL(ENVIRONMENT("CUDA_TASK_PRIORITY", "0").priority, 0);
    CHECK_EQUAL(ENVIRONMENT("CUDA_TASK_PRIORITY", "7").priority, 1);
    CHECK_EQUAL(ENVIRONMENT("CUDA_TASK_PRIORITY", "-3").priority, 1);
}

static void policies_are_read_in_any_case(void)
{
    CHECK_EQUAL(ENVIRONMENT("GPU_CORE_UTILIZATION_POLICY", "Force").policy, POLICY_FORCE);
    CHECK_EQUAL(ENVIRONMENT("GPU_CORE_UTILIZATION_POLICY", "DISABLE").policy, POLICY_DISABLE);
    CHECK_EQUAL(ENVIRONMENT("GPU_CORE_UTILIZATION_POLICY", "what").policy, POLICY_DEFAULT);
}

/* What gives a container no more may still be said by its environment: how much is written, and that it yields to others. */
static void a_limits_page_leaves_nothing_to_the_environment_that_would_give_more(void)
{
    struct limits_page page = {.flags = PAGE_OVERSUBSCRIBE, .count = 2, .region = "/tmp/vgpu/x.cache", .cards = {{"GPU-1", 3ull << 30, 30}, {"MIG-1", 0, 0}}};
    struct config config = ENVIRONMENT("CUDA_DEVICE_MEMORY_LIMIT", "30g", "CUDA_DEVICE_SM_LIMIT", "90", "GPU_CORE_UTILIZATION_POLICY", "disable",
                                       "CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/mine", "PUMICE_VGPU_CARDS", "none", "PUMICE_VGPU_RECONCILE_MS",
                                       "0", "PUMICE_VGPU_CONTEXT_BYTES", "1", "LIBCUDA_LOG_LEVEL", "0", "CUDA_TASK_PRIORITY", "0",
                                       "PUMICE_VGPU_ARBITER", "1", "CUDA_DEVICE_MEMORY_LIMIT_3", "lots");
    config_obey(&config, &page);
    CHECK(config.memory_limit[0] == 3ull << 30 && config.memory_limit[1] == 0 && config.memory_limit[2] == GRANTED_NOTHING_BYTES);
    CHECK(config.sm_limit[0] == 30 && config.policy == POLICY_DEFAULT && config.oversubscribe);
    CHECK(strcmp(config.region_path, "/tmp/vgpu/x.cache") == 0 && config.cards[0] == '\0' && config.complaint[0] == '\0');
    CHECK(config.reconcile_ms == 1000 && config.context_bytes > 1 && config.any_memory_variable);
    CHECK(config.log_level == 0 && config.priority == 0 && config.arbiter);
    page.flags = PAGE_NO_CORE_LIMIT;
    config_obey(&config, &page);
    CHECK(config.policy == POLICY_DISABLE && !config.oversubscribe);
    log_set_level(LOG_LEVEL_WARNING);
}

/* Whoever gets rid of the page gets what the environment says. */
static void a_page_that_cannot_be_opened_for_want_of_descriptors_is_there_and_grants_nothing(void)
{
    const char *problem = NULL;
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = (struct rlimit){0, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    const struct limits_page *page = granted_page("/proc/self/exe", &problem);
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(page == granted_nothing());
    CHECK(problem != NULL);
    CHECK(granted_page("/no/such/page", &problem) == NULL);
}

int main(void)
{
    each_spelling_of_bytes();
    each_spelling_of_percent();
    the_own_variable_comes_before_the_general_one();
    nothing_said_is_unlimited();
    zero_inherits();
    a_bad_memory_value_falls_to_the_next_source();
    a_bad_memory_value_without_another_source_gives_nothing();
    a_bad_core_value_fails_open();
    a_device_nobody_spoke_of_gets_the_smallest_limit_given();
    the_priority_is_never_outside_what_monitors_index();
    policies_are_read_in_any_case();
    a_limits_page_leaves_nothing_to_the_environment_that_would_give_more();
    a_page_that_cannot_be_opened_for_want_of_descriptors_is_there_and_grants_nothing();
    return check_result("limits");
}
