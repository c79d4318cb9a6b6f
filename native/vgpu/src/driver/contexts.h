/* What contexts cost (spec hami-core 7.2 and 10): measured by NVML right after they are made, a constant where nothing measures. */
#ifndef VGPU_CONTEXTS_H
#define VGPU_CONTEXTS_H

#include <stdbool.h>

/* Before an allocation: a primary context that was made on a path we do not see is charged now. */
void contexts_notice(int device);
bool contexts_any(int device); /* this process has one there */
void contexts_after_fork(void);

#endif
