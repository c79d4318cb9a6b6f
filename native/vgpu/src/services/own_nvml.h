/*
 * NVML for our own questions. NVML counts who initialised it; our reference must not keep it alive after the program's last shutdown, for
 * a program may ask whether it is. From then on it is ours for the length of a question.
 */
#ifndef VGPU_OWN_NVML_H
#define VGPU_OWN_NVML_H

#include "driver/real.h"

/* False when there is none; else own_nvml_done() follows. May be nested. */
bool own_nvml(void);
void own_nvml_done(void);

/* The program's. */
void own_nvml_program_began(void);
nvmlReturn own_nvml_program_ends(void);

void own_nvml_after_fork(void);

#endif
