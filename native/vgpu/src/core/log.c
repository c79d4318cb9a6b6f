#include "core/log.h"

#include "core/numbers.h"
#include "core/quiet.h"
#include "vgpu/region.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_BYTES = 512, ALWAYS_WRITTEN = 5 };

static int current_level = LOG_LEVEL_WARNING;

void log_set_level(int level)
{
    if (level < LOG_LEVEL_ERROR)
        level = LOG_LEVEL_ERROR;
    shared_put(&current_level, level);
}

int log_level(void)
{
    return shared_peek(&current_level);
}

static const char *name_of(int level)
{
    switch (level) {
    case LOG_LEVEL_ERROR: return "error";
    case LOG_LEVEL_WARNING: return "warning";
    case LOG_LEVEL_INFO: return "info";
    default: return "debug";
    }
}

void log_write(int level, uint32_t *times, const char *format, ...)
{
    uint32_t count = __atomic_add_fetch(times, 1, __ATOMIC_RELAXED);
    if (count > ALWAYS_WRITTEN && (count & (count - 1)) != 0)
        return;

    KEEP_ERRNO;
    char line[LINE_BYTES];
    int used = snprintf(line, sizeof line, "libvgpu[%d] %s: ", (int)getpid(), name_of(level));
    va_list values;
    va_start(values, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, values);
    va_end(values);
    if (more > 0)
        used += more;
    if (used > LINE_BYTES - 2)
        used = LINE_BYTES - 2;
    line[used++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)used);
    (void)ignored; /* nowhere to say that stderr is gone */
}

enum { TEXT_BYTES = 400 };

void warn_once(const struct region_map *map, int level, enum warning_subject subject, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    uint32_t hash = hash_of_text(text) | 1; /* 0: nothing said yet */
    bool said = map->ext_shared && __atomic_exchange_n(&map->ext->warned[subject], hash, __ATOMIC_SEQ_CST) == hash;
    static uint32_t times[EXT_WARNINGS];
    if (said)
        level = LOG_LEVEL_INFO;
    if (level <= log_level())
        log_write(level, &times[subject], "%s", text);
}
