/*
 * What drivers take late: the code of a function when it is first asked for, the variables of a library when one of them is. It cannot be
 * undone, so it is charged whatever the limit says, and at once.
 *
 * Each first question for a name is followed by a look at NVML, for what the card as a whole has less hides under what others give back
 * at that moment. Who asks again is told from memory and asks nobody (docs/adr/0105).
 */
#ifndef VGPU_LATE_LOADING_H
#define VGPU_LATE_LOADING_H

#include "driver/real.h"
#include "services/free_delta.h"

enum late_kind { LATE_CODE, LATE_VARIABLES };

struct late_loading {
    enum late_kind kind;
    uint64_t question;
    struct free_delta before; /* of no device: nothing is asked afterwards */
};

/* name NULL: there is but one thing to ask for. */
struct late_loading late_loading_begin(enum late_kind kind, const void *of, const char *name);
CUresult late_loading_end(CUresult rc, const struct late_loading *loading);

/* A handle is about to end: until all questions are forgotten none is answered from memory, for it may come again at once. */
void late_loading_ending(void);
void late_loading_ended(void);
void late_loading_forget(void);

#endif
