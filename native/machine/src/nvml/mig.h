/* What the two halves of MIG share. */
#ifndef PUMICE_MACHINE_MIG_H
#define PUMICE_MACHINE_MIG_H

#include "nvml.h"

struct machine_compute_instance *mig_compute(nvmlComputeInstance_t handle, unsigned *card, unsigned *gi, unsigned *ci,
                                             nvmlReturn_t *rc);

#endif
