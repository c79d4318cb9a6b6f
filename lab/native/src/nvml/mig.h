/* Shared by the parts of MIG. */
#ifndef PUMICE_MACHINE_MIG_H
#define PUMICE_MACHINE_MIG_H

#include "nvml.h"

/* A whole card in MIG mode. */
#define MIG_CARD(function, device) \
    WHOLE_CARD(function, device); \
    if (!c->mig_capable || !LOAD(&c->mig_mode)) \
        return NVML_ERROR_NOT_SUPPORTED;

int mig_profile_by_id(const struct machine_card *c, unsigned id); /* its place in the card's profiles; -1: none */

struct machine_compute_instance *mig_compute(nvmlComputeInstance_t handle, unsigned *card, unsigned *gi, unsigned *ci,
                                             nvmlReturn_t *rc);

#endif
