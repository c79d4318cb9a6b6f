/*
 * GPU time under a limits page: what is charged and what was earned, where no other process of the container can write it.
 *
 * Each process keeps a book of the container's budget for itself. What it charges it says in a lane of record locks
 * (core/lanes.h), half a millisecond at a time, and what the others say is charged here when it looks, each millisecond. So all
 * come to the same balance. It is a little late: the words of the region, where each launch of the container has its place, go
 * on saying whose turn it is. But a launch starts only when the own book has paid for it, too, and waits for words only as long
 * as locks bear them out.
 *
 * What others write in shared words may still shorten a measurement, for it met their slices, or hold a launch up, for it is
 * their turn. Both only as far as locks show that they did use the card: that much, and for the second some patience more.
 *
 * Without a page the words of the region are the budget, and all of this does nothing.
 */
#ifndef VGPU_USAGE_H
#define VGPU_USAGE_H

#include "core/region_map.h"
#include "policy/arbiter.h"

/* After the ledger was opened. False: no memory for it, and the words of the region stay the budget. */
bool usage_open(struct region_map *map);

/* The lanes of all processes on the card lie in the node's file. Until then those of the container's others alone count. */
void usage_join_card(struct region_map *map, int device, const struct arbiter *arbiter);

/* The place of a launch among all that was charged: by the words of the region, and by this process's own book. */
struct ticket {
    int64_t shared, own;
};
struct ticket usage_charge(struct region_map *map, int device, int64_t cost);
void usage_correct(struct region_map *map, int device, int64_t difference);
struct ticket usage_charged(const struct region_map *map, int device); /* behind all that is there */

/* Returns whether all before the ticket is paid for and so much more saved up; else after how long by either. */
bool usage_allows(const struct region_map *map, int device, struct ticket ticket, int64_t ahead);
struct usage_wait {
    uint64_t own_ns, shared_ns;
};
struct usage_wait usage_wait(const struct region_map *map, int device, uint64_t percent, struct ticket ticket, int64_t ahead);

/* The words of the region say what no lock bears out: they say from now on what the own book does. */
void usage_mend(struct region_map *map, int device, uint64_t now);

/* A process without a limit says that it may have used the card for so long: others measure beside it. */
void usage_of_card(struct region_map *map, int device, uint64_t ns);

/* Brings both up to now. */
void usage_refill(struct region_map *map, int device, uint64_t percent, uint64_t now);

/* The limit, or this process's even part of it where it cannot say what it uses. */
uint64_t usage_limit(struct region_map *map, int device, uint64_t percent);

/* A measurement is shortened by so much, for others had the card meanwhile: what of it no lock shows, to be charged after all. */
int64_t usage_unproven(struct region_map *map, int device, uint64_t ns);

/* Returns whether the shared words may go on holding a launch up, and notes that they did. */
bool usage_is_patient(struct region_map *map, int device, uint64_t now);
void usage_waited(struct region_map *map, int device, uint64_t ns);

#endif
