#include "core/config.h"

#include "core/limits.h"
#include "core/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DEFAULT_CONTEXT_BYTES (300ull << 20) /* spec hami-core 10: what nothing measured is taken to be */

typedef enum limit_verdict (*parser)(const char *text, uint64_t *value);

/* All complaints in one line: a configuration is wrong once, however many of its variables are. */
static void complain(struct config *config, const char *name, const char *text)
{
    size_t used = strlen(config->complaint);
    snprintf(config->complaint + used, sizeof config->complaint - used, "%s%s=%.64s is not a limit", used > 0 ? ", " : "", name, text);
}

/* One variable: true when it holds a usable value above zero; zero means inherit, as upstream's does. */
static bool read_limit(struct config *config, lookup_fn lookup, parser parse, const char *name, uint64_t *value, bool *present)
{
    const char *text = lookup(name);
    uint64_t number = 0;
    enum limit_verdict verdict = parse(text, &number);
    if (verdict == LIMIT_BAD)
        complain(config, name, text);
    if (verdict != LIMIT_ABSENT)
        *present = true;
    if (verdict == LIMIT_GOOD && number > 0)
        *value = number;
    return verdict == LIMIT_GOOD && number > 0;
}

/*
 * A device without a variable of its own, beside devices that have one and without a general variable, was not meant
 * to be seen at all: it gets the smallest limit given, because memory limits fail closed.
 */
static void close_gaps(struct config *config, const bool *own)
{
    uint64_t smallest = 0;
    for (int i = 0; i < REGION_DEVICES; i++)
        if (config->memory_limit[i] > 0 && (smallest == 0 || config->memory_limit[i] < smallest))
            smallest = config->memory_limit[i];
    for (int i = 0; smallest > 0 && i < REGION_DEVICES; i++)
        if (!own[i]) {
            config->memory_limit[i] = smallest;
            config->memory_gap[i] = true;
        }
}

static void read_memory(struct config *config, lookup_fn lookup)
{
    uint64_t general = 0;
    bool general_present = false, own[REGION_DEVICES] = {false};
    read_limit(config, lookup, parse_bytes, "CUDA_DEVICE_MEMORY_LIMIT", &general, &general_present);
    for (int i = 0; i < REGION_DEVICES; i++) {
        char name[64];
        snprintf(name, sizeof name, "CUDA_DEVICE_MEMORY_LIMIT_%d", i);
        config->memory_limit[i] = general;
        read_limit(config, lookup, parse_bytes, name, &config->memory_limit[i], &own[i]);
        config->any_memory_variable |= own[i];
    }
    config->any_memory_variable |= general_present;
    if (!general_present)
        close_gaps(config, own);
}

static void read_cores(struct config *config, lookup_fn lookup)
{
    uint64_t general = 100;
    bool present = false;
    read_limit(config, lookup, parse_percent, "CUDA_DEVICE_SM_LIMIT", &general, &present);
    for (int i = 0; i < REGION_DEVICES; i++) {
        char name[64];
        snprintf(name, sizeof name, "CUDA_DEVICE_SM_LIMIT_%d", i);
        config->sm_limit[i] = general;
        read_limit(config, lookup, parse_percent, name, &config->sm_limit[i], &present);
    }
    config->any_sm_variable = present;
}

static bool truth(const char *text)
{
    return text != NULL && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

static enum core_policy read_policy(const char *text)
{
    if (text != NULL && strcasecmp(text, "force") == 0)
        return POLICY_FORCE;
    if (text != NULL && strcasecmp(text, "disable") == 0)
        return POLICY_DISABLE;
    return POLICY_DEFAULT;
}

static uint64_t number_or(const char *text, uint64_t otherwise)
{
    uint64_t value;
    return parse_bytes(text, &value) == LIMIT_GOOD ? value : otherwise;
}

void config_read(struct config *config, lookup_fn lookup)
{
    memset(config, 0, sizeof *config);
    config->log_level = (int)number_or(lookup("LIBCUDA_LOG_LEVEL"), LOG_LEVEL_WARNING);
    log_set_level(config->log_level);
    read_memory(config, lookup);
    read_cores(config, lookup);
    /* Volcano's monitor indexes an array of two by the priority, so nothing else may reach the region. */
    config->priority = number_or(lookup("CUDA_TASK_PRIORITY"), 1) == 0 ? 0 : 1;
    config->policy = read_policy(lookup("GPU_CORE_UTILIZATION_POLICY"));
    config->oversubscribe = truth(lookup("CUDA_OVERSUBSCRIBE"));
    config->arbiter = truth(lookup("PUMICE_VGPU_ARBITER"));
    config->oom_killer = truth(lookup("ACTIVE_OOM_KILLER"));
    config->reconcile_ms = number_or(lookup("PUMICE_VGPU_RECONCILE_MS"), 1000);
    config->record_interval_s = number_or(lookup("RECORD_KERNEL_INTERVAL"), 1);
    config->context_bytes = number_or(lookup("PUMICE_VGPU_CONTEXT_BYTES"), DEFAULT_CONTEXT_BYTES);
    const char *path = lookup("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    if (path != NULL)
        snprintf(config->region_path, sizeof config->region_path, "%s", path);
    const char *cards = lookup("PUMICE_VGPU_CARDS");
    if (cards != NULL)
        snprintf(config->cards, sizeof config->cards, "%s", cards);
    const char *directory = lookup("PUMICE_VGPU_LOCK_DIRECTORY");
    snprintf(config->arbiter_directory, sizeof config->arbiter_directory, "%s",
             directory != NULL ? directory : "/tmp/vgpulock");
}
