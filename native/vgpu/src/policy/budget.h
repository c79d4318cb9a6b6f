/*
 * GPU time as a budget of the container (HAMi-core src/multiprocess/multiprocess_utilization_watcher.c, and better than its
 * fair in one point).
 *
 * credit grows with the clock at the rate of the limit; every launch adds its cost to charged and takes the value before as
 * its ticket. It may start once credit has passed the ticket. Launches of all processes of the container therefore start in
 * the order in which they came, each exactly when the work before it is paid for, and nobody has to win a race.
 */
#ifndef VGPU_BUDGET_H
#define VGPU_BUDGET_H

#include "vgpu/region.h"

#include <stdbool.h>

/* Returns the most unused time that may be saved up, in ns. */
int64_t budget_cap(uint64_t percent);

/* Brings credit up to now. */
void budget_refill(struct ext_device *device, uint64_t percent, uint64_t now);

/* Charges the cost and returns the ticket. */
static inline int64_t budget_charge(struct ext_device *device, int64_t cost)
{
    return shared_add(&device->charged_ns, cost);
}

/*
 * Corrects a charge that turned out to be more or less. A refund is credit: lowering charged would leave tickets behind that no
 * credit ever passes, because credit stops growing a little above charged.
 */
static inline void budget_correct(struct ext_device *device, int64_t difference)
{
    if (difference > 0)
        shared_add(&device->charged_ns, difference);
    else if (difference < 0)
        shared_add(&device->credit_ns, -difference);
}

static inline bool budget_allows(const struct ext_device *device, int64_t ticket)
{
    return shared_peek(&device->credit_ns) > ticket;
}

/*
 * The right to launch work of unknown cost: one such launch at a time in the container, so that it is measured alone and the
 * debt it may leave is one kernel's. It lapses, because its holder may die.
 */
bool budget_probe_begin(struct ext_device *device, uint64_t now, uint64_t longest_ns);
void budget_probe_launched(struct ext_device *device, uint64_t ends); /* as far as is known */
bool budget_probe_runs(const struct ext_device *device, uint64_t now);
void budget_probe_renew(struct ext_device *device, uint64_t until); /* 0: the answer is there */

/* The time until credit passes the ticket at the present rate, in ns; 0 = now. */
uint64_t budget_wait_ns(const struct ext_device *device, uint64_t percent, int64_t ticket);

#endif
