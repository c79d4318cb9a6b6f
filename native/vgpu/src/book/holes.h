/*
 * What is known to be free in a memory pool: stretches that blocks left, and what a new piece has behind its first block. The driver may
 * know of more, never of less: what it gives out is taken from here, and a pool that gave something back is one of which nothing is known.
 */
#ifndef VGPU_HOLES_H
#define VGPU_HOLES_H

#include <stdbool.h>
#include <stdint.h>

enum { HOLES = 32 };

struct holes {
    struct hole {
        uint64_t at, bytes; /* bytes 0: none */
    } hole[HOLES];
};

void holes_forget(struct holes *holes);
void holes_add(struct holes *holes, uint64_t at, uint64_t bytes); /* the shortest is forgotten where there is no place */
void holes_take(struct holes *holes, uint64_t at, uint64_t bytes);
bool holes_fit(const struct holes *holes, uint64_t bytes);

#endif
