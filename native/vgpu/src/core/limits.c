#include "core/limits.h"

#include <stdbool.h>
#include <stddef.h>

typedef unsigned __int128 wide;

static const char *skip_space(const char *at)
{
    while (*at == ' ' || (*at >= '\t' && *at <= '\r'))
        at++;
    return at;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

static int digit(char c, int base)
{
    c = lower(c);
    int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : base;
    return value < base ? value : -1;
}

/* Reads digits at *at; false without any digit or when the value needs more than 64 bits. */
static bool read_integer(const char **at, int base, uint64_t *value)
{
    wide sum = 0;
    const char *start = *at;
    for (int d; (d = digit(**at, base)) >= 0; (*at)++) {
        sum = sum * (unsigned)base + (unsigned)d;
        if (sum > UINT64_MAX)
            return false;
    }
    *value = (uint64_t)sum;
    return *at != start;
}

/* Digits behind the point as numerator over a power of ten; digits after the eighteenth are below a byte. */
static bool read_fraction(const char **at, uint64_t *numerator, uint64_t *denominator)
{
    *numerator = 0;
    *denominator = 1;
    if (**at != '.')
        return true;
    (*at)++;
    const char *start = *at;
    for (int d; (d = digit(**at, 10)) >= 0; (*at)++) {
        if (*at - start < 18) {
            *numerator = *numerator * 10 + (unsigned)d;
            *denominator *= 10;
        }
    }
    return *at != start;
}

/* k, m, g, t, each with optional i and b; or b alone; or nothing. */
static uint64_t read_unit(const char **at)
{
    static const char letters[] = "kmgt";
    uint64_t unit = 1;
    for (int i = 0; letters[i] != '\0'; i++)
        if (lower(**at) == letters[i])
            unit = 1ull << (10 * (i + 1));
    if (unit > 1) {
        (*at)++;
        if (lower(**at) == 'i')
            (*at)++;
    }
    if (lower(**at) == 'b')
        (*at)++;
    return unit;
}

static int read_base(const char **at)
{
    if ((*at)[0] == '0' && lower((*at)[1]) == 'x') {
        *at += 2;
        return 16;
    }
    return 10;
}

enum limit_verdict parse_bytes(const char *text, uint64_t *bytes)
{
    if (text == NULL || *skip_space(text) == '\0')
        return LIMIT_ABSENT;
    const char *at = skip_space(text);
    int base = read_base(&at);
    uint64_t whole, numerator = 0, denominator = 1;
    if (!read_integer(&at, base, &whole))
        return LIMIT_BAD;
    if (base == 10 && !read_fraction(&at, &numerator, &denominator))
        return LIMIT_BAD;
    uint64_t unit = read_unit(&at);
    if (*skip_space(at) != '\0')
        return LIMIT_BAD;
    wide sum = (wide)whole * unit + (wide)numerator * unit / denominator;
    if (sum > UINT64_MAX)
        return LIMIT_BAD;
    *bytes = (uint64_t)sum;
    return LIMIT_GOOD;
}

enum limit_verdict parse_percent(const char *text, uint64_t *percent)
{
    if (text == NULL || *skip_space(text) == '\0')
        return LIMIT_ABSENT;
    const char *at = skip_space(text);
    int base = read_base(&at);
    if (!read_integer(&at, base, percent))
        return LIMIT_BAD;
    at = skip_space(at);
    if (*at == '%')
        at++;
    return *skip_space(at) == '\0' ? LIMIT_GOOD : LIMIT_BAD;
}
