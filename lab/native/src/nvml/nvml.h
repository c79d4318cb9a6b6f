/* The inside of libnvidia-ml.so.1. Hidden. */
#ifndef PUMICE_MACHINE_NVML_H
#define PUMICE_MACHINE_NVML_H

#include "core.h"
#include "nvml_api.h"

/* A handle is a number: what it is, which card, which instance and the instance's generation; a stale one is refused. */
struct target {
    unsigned card;
    int gi, ci; /* slots; -1: the whole card */
};

bool nvml_ready(void);
nvmlReturn_t nvml_target(nvmlDevice_t handle, struct target *out); /* INVALID_ARGUMENT, GPU_IS_LOST or success */
nvmlDevice_t nvml_card_handle(unsigned card);
nvmlDevice_t nvml_mig_handle(unsigned card, unsigned gi, unsigned ci);
unsigned nvml_mig_index(unsigned card, unsigned gi, unsigned ci);
nvmlReturn_t nvml_may_change(void); /* NO_PERMISSION where settings need root */

static inline nvmlReturn_t nvml_enter(const char *function)
{
    return nvml_ready() ? fault_check(function) : NVML_ERROR_UNINITIALIZED;
}
#define ENTER(function) do { nvmlReturn_t entered_ = nvml_enter(#function); if (entered_) return entered_; } while (0)
/* Names the card `c` and the target `t` of a device handle. */
#define DEVICE(function, handle) \
    ENTER(function); \
    struct target t; \
    do { nvmlReturn_t target_ = nvml_target(handle, &t); if (target_) return target_; } while (0); \
    struct machine_card *c = card_at(t.card); \
    (void)c;
#define WHOLE_CARD(function, handle) \
    DEVICE(function, handle); \
    if (t.gi >= 0) \
        return NVML_ERROR_NOT_SUPPORTED;
#define NEED(condition) do { if (!(condition)) return NVML_ERROR_INVALID_ARGUMENT; } while (0)

nvmlReturn_t nvml_text(char *out, unsigned length, const char *text); /* INSUFFICIENT_SIZE when it does not fit */

/* ---- processes.c ---- */
uint64_t nvml_busy_percent(const uint64_t *buckets, uint64_t epoch, uint64_t now);
bool nvml_card_busy(unsigned card, int gi, int ci); /* some process uses it */

/* ---- mig_compute.c ---- */
struct machine_gpu_instance *mig_instance(nvmlGpuInstance_t handle, unsigned *card, unsigned *slot, nvmlReturn_t *rc);
nvmlGpuInstance_t mig_instance_handle(unsigned card, unsigned gi);
const struct machine_profile *mig_profile_of(const struct machine_card *c, const struct machine_gpu_instance *gi);
unsigned mig_sm_count(const struct machine_profile *p, unsigned slices);

#endif
