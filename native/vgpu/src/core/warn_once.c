#include "core/warn_once.h"

#include "core/log.h"
#include "core/numbers.h"

#include <stdarg.h>
#include <stdio.h>

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
