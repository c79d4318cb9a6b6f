/*
 * The grammar of the limit variables (HAMi-core src): a superset of upstream's that keeps every sane input.
 *
 * Memory: decimal or 0x integer, optional decimal fraction, optional unit k m g t (with i and/or b, any case), all binary.
 * Percent: an integer with optional %. Signs, other text and overflow are bad; a leading zero means nothing.
 */
#ifndef VGPU_LIMITS_H
#define VGPU_LIMITS_H

#include <stdint.h>

enum limit_verdict { LIMIT_ABSENT, LIMIT_GOOD, LIMIT_BAD };

enum limit_verdict parse_bytes(const char *text, uint64_t *bytes);
enum limit_verdict parse_percent(const char *text, uint64_t *percent);

#endif
