/* The smallest test kit: CHECK says what did not hold and where, and the program ends with 1 if anything did not. */
#ifndef VGPU_TESTS_CHECK_H
#define VGPU_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_failures __attribute__((unused));

#define CHECK(holds) \
    do { \
        if (!(holds)) { \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
            check_failures++; \
        } \
    } while (0)

#define CHECK_EQUAL(got, wanted) \
    do { \
        long long check_got = (long long)(got), check_wanted = (long long)(wanted); \
        if (check_got != check_wanted) { \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, check_got, check_wanted); \
            check_failures++; \
        } \
    } while (0)

static inline int check_result(const char *name)
{
    printf("%s %s\n", check_failures == 0 ? "ok  " : "FAIL", name);
    return check_failures == 0 ? 0 : 1;
}

#endif
