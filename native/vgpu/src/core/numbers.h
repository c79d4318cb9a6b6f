/* Arithmetic of sizes and times that stops at the ends instead of going over them, and a hash of text. */
#ifndef VGPU_NUMBERS_H
#define VGPU_NUMBERS_H

#include <stdint.h>

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t clamp_u64(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : min_u64(value, most);
}

static inline uint64_t add_u64(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static inline uint64_t sub_u64(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t distance_u64(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

static inline uint64_t mul_u64(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t round_up(uint64_t value, uint64_t grain)
{
    return value > UINT64_MAX - grain ? UINT64_MAX : (value + grain - 1) / grain * grain;
}

/* FNV-1a. */
static inline uint32_t hash_of_text(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash;
}

#endif
