/*
 * Settings from the environment, read once per process when it first uses the GPU (HAMi-core src).
 *
 * The lookup is an argument so that tests need no environment of their own.
 */
#ifndef VGPU_CONFIG_H
#define VGPU_CONFIG_H

#include "vgpu/limits_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum core_policy { POLICY_DEFAULT, POLICY_FORCE, POLICY_DISABLE };

struct config {
    uint64_t memory_limit[REGION_DEVICES]; /* bytes, 0 = unlimited */
    uint64_t sm_limit[REGION_DEVICES];     /* percent, 100 = unlimited */
    bool any_memory_variable;              /* whether the environment speaks of memory at all */
    bool any_sm_variable;
    bool memory_gap[REGION_DEVICES]; /* no variable names this device, though others are named: it has the smallest limit given */
    int32_t priority;
    enum core_policy policy;
    bool oversubscribe;
    bool arbiter;
    bool oom_killer;
    uint64_t reconcile_ms; /* between looks at NVML's figure; 0 = never */
    uint64_t record_interval_s; /* between updates of last_kernel_time */
    uint64_t context_bytes;     /* charged for a context that nothing can measure */
    int log_level;
    const struct limits_page *page; /* NULL: there is none */
    char region_path[4096]; /* empty = the variable is missing */
    char arbiter_directory[256];
    char cards[REGION_DEVICES * 48]; /* the UUIDs of the cards that are shared, where NVML shows others, too; empty = all */
    char complaint[256]; /* about limits that are none, said once the region is there; empty = all are well */
};

typedef const char *(*lookup_fn)(const char *name);

void config_read(struct config *config, lookup_fn lookup);

/* A limits page over it: nothing that lets a container have more is left to the environment. */
void config_obey(struct config *config, const struct limits_page *page);

/*
 * The grammar of the limit variables (HAMi-core src): a superset of upstream's that keeps every sane input.
 *
 * Memory: decimal or 0x integer, optional decimal fraction, optional unit k m g t (with i and/or b, any case), all binary.
 * Percent: an integer with optional %. Signs, other text and overflow are bad; a leading zero means nothing.
 */
enum limit_verdict { LIMIT_ABSENT, LIMIT_GOOD, LIMIT_BAD };

enum limit_verdict parse_bytes(const char *text, uint64_t *bytes);
enum limit_verdict parse_percent(const char *text, uint64_t *percent);

#endif
