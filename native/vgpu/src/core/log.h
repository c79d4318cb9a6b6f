/*
 * One line at a time to stderr, by one write(2), never to stdout.
 *
 * LIBCUDA_LOG_LEVEL as upstream counts: 0 and 1 errors, 2 (default) and warnings, 3 and information, 4 and debugging. A line that repeats
 * is written the first five times and then at powers of two, so a loop that runs into its limit does not fill a disk.
 */
#ifndef VGPU_LOG_H
#define VGPU_LOG_H

#include "core/region_map.h"

#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR = 1, LOG_LEVEL_WARNING = 2, LOG_LEVEL_INFO = 3, LOG_LEVEL_DEBUG = 4 };

void log_set_level(int level);
int log_level(void);
void log_write(int level, uint32_t *times, const char *format, ...) __attribute__((format(printf, 3, 4), cold));

#define log_at(level, ...) \
    do { \
        static uint32_t log_times; \
        if ((level) <= log_level()) \
            log_write((level), &log_times, __VA_ARGS__); \
    } while (0)
#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)

/*
 * Warnings: a fault of a container's configuration is said once in the container, not by each of its processes.
 *
 * The region keeps, by subject, a hash of the last complaint: whoever puts another one there writes the line, the others have
 * it at the information level. Where no region is shared each process says it for itself.
 */
enum warning_subject {
    WARN_BAD_VARIABLE,  /* a limit that is none */
    WARN_OTHER_LIMIT,   /* the environment asks for another limit than the region has held from the beginning */
    WARN_ABOVE_CARD,    /* a limit above the card's memory */
    WARN_NO_OWN_LIMIT,  /* more devices than limits */
    WARN_TOO_MANY,      /* more devices than the region has room for */
};

void warn_once(const struct region_map *map, int level, enum warning_subject subject, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));

#endif
