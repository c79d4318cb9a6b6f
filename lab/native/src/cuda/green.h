/* Parts of a card's processors: resources that a program describes (green_resources.c), and green contexts that have them. */
#ifndef PUMICE_MACHINE_GREEN_H
#define PUMICE_MACHINE_GREEN_H

#include "objects.h"

#define MOST_SMS 512
struct sm_set { uint32_t words[MOST_SMS / 32]; };
static inline bool sm_in(const struct sm_set *set, unsigned sm) { return set->words[sm / 32] >> sm % 32 & 1; }
unsigned sm_set_size(const struct sm_set *set);

/* The content of a descriptor. */
struct part {
    CUdevice device;
    struct sm_set sms;
    unsigned concurrency; /* streams that shall not wait for each other */
    int scope;
};
struct resources { struct object o; struct part part; };
struct green {
    struct object o;
    CUcontext context;
    struct part part;
    uint64_t id;
    _Atomic uint64_t waits; /* position before which nothing begins that it is given from now on */
};

struct part part_of_device(CUdevice device);
CUresult part_describe(const struct part *part, int type, CUdevResource *out);

#endif
