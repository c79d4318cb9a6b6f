/*
 * Modules and libraries (HAMi-core src/cuda, HAMi-core src/allocator/allocator.c, type 1). What the image of a module says that it needs is
 * reserved before the driver is asked, so a module that cannot fit is never loaded. What it took in truth is measured afterwards, by NVML's
 * figure for the process or, where NVML does not tell, by what the card lost within the bounds of what the image can take; should the limit
 * have no room for the rest, which can only be translated or unknown code, the module is unloaded and refused.
 */
#ifndef VGPU_MODULE_MEMORY_H
#define VGPU_MODULE_MEMORY_H

#include "driver/real.h"
#include "services/nvml.h"

struct module_image { /* neither: a library, which takes what it needs where something of it is first asked for */
    const void *data;
    const char *path;
};

struct module_loading {
    int device;
    uint64_t expected, least, most;
    uint64_t holds; /* at most, blocks that others pay for among them */
    bool silent;    /* the image says nothing */
    struct free_delta before;
};

/* False when there is no room for what the image says. */
bool module_load_begin(struct module_loading *loading, const struct module_image *image);
/* After the driver loaded it: the driver's answer, or out of memory where it took more than there is; then it is unloaded again. */
CUresult module_loaded(CUresult rc, void **handle, const struct module_loading *loading, CUresult (*unload)(void *));
CUresult module_unload(CUresult (*unload)(void *), void *handle);
struct record;
void module_dropped(const struct record *module); /* with its context */

/* The device of the current context when it has a memory limit; -1: nothing to measure. */
int module_device(void);

/*
 * Memory that drivers take late: the code of a function when it is first asked for, the variables of a library when one of them
 * is. It cannot be undone, so it is charged whatever the limit says, and at once.
 *
 * Each first question for a name is followed by a look at NVML, for what the card as a whole has less hides under what others
 * give back at that moment. Who asks again is told from memory and asks nobody (docs/adr/0105).
 */
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
