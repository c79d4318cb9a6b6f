/* Shared by libdcmi.so and libascendcl.so: attaching, the lock, which chips a process sees, which processes live. */
#ifndef PUMICE_NPU_CORE_H
#define PUMICE_NPU_CORE_H

#include "machine/npu.h"

#include <stdbool.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define NPU_VIEWS (NPU_CHIPS * NPU_SLICES)

/* One device as this process sees it: a whole chip, or a slice of one. */
struct npu_view {
    struct npu_chip *chip;
    struct npu_slice *slice; /* NULL: the whole chip */
};

/* The state of PUMICE_MACHINE (/run/pumice/machine without one), mapped once; NULL without NPUs. */
struct npu_state *npu_attach(void);
/* Holds every other process out; the answer is for npu_unlock. -1: it cannot be opened. */
int npu_lock(void);
void npu_unlock(int held);

/* The devices that this process sees, in order of their logic ids, by ASCEND_VISIBLE_DEVICES as the container runtime leaves it;
 * all chips where it is not set. */
unsigned npu_views(struct npu_view out[NPU_VIEWS]);
/* Returns whether this process lives in a container's view. */
bool npu_inside(void);

/* Returns the error that is to be answered instead of doing the work; 0 for none. Under the lock. */
int npu_fault(const char *function);
/* The end of a call that changed something: the other place to be killed at. */
void npu_done(const char *function);

/* Takes the dead out of a chip's rows. Under the lock. */
void npu_reap(struct npu_chip *chip);
/* Bytes that live processes hold of the whole chip (slice 0) or of that slice; `count` of them, where asked. Under the lock. */
uint64_t npu_held(const struct npu_chip *chip, uint32_t slice, unsigned *count);
/* This process's row for the whole chip (0) or that slice; NULL where all rows are taken. Under the lock. */
struct npu_process *npu_own_row(struct npu_chip *chip, uint32_t slice);

const struct npu_size *npu_size_of(const struct npu_view *view);
uint64_t npu_now_ns(void);

#endif
