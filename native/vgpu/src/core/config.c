#include "core/config.h"

#include "core/granted.h"
#include "core/log.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- the grammar of limits ---- */

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

/* ---- the environment ---- */

#define NOTHING_BYTES 1u /* 0 is unlimited */

typedef enum limit_verdict (*parser)(const char *text, uint64_t *value);

/* All complaints in one line: a configuration is wrong once, however many of its variables are. */
static void complain(struct config *config, const char *name, const char *text)
{
    size_t used = strlen(config->complaint);
    snprintf(config->complaint + used, sizeof config->complaint - used, "%s%s=%.64s is not a limit", used > 0 ? ", " : "", name, text);
}

/* One variable: its value where that is usable and above zero; zero means inherit, as upstream's does. False: it is no limit. */
static bool read_limit(struct config *config, lookup_fn lookup, parser parse, const char *name, uint64_t *value, bool *present)
{
    const char *text = lookup(name);
    uint64_t number = 0;
    enum limit_verdict verdict = parse(text, &number);
    if (verdict == LIMIT_BAD)
        complain(config, name, text);
    if (verdict != LIMIT_ABSENT)
        *present = true;
    if (verdict == LIMIT_GOOD && number > 0)
        *value = number;
    return verdict != LIMIT_BAD;
}

/*
 * A device without a variable of its own, beside devices that have one and without a general variable, was not meant
 * to be seen at all: it gets the smallest limit given, because memory limits fail closed.
 */
static void close_gaps(struct config *config, uint64_t smallest, const bool *own)
{
    for (int i = 0; smallest > 0 && i < REGION_DEVICES; i++)
        if (!own[i]) {
            config->memory_limit[i] = smallest;
            config->memory_gap[i] = true;
        }
}

static uint64_t smallest_limit(const struct config *config)
{
    uint64_t smallest = 0;
    for (int i = 0; i < REGION_DEVICES; i++)
        if (config->memory_limit[i] > 0 && (smallest == 0 || config->memory_limit[i] < smallest))
            smallest = config->memory_limit[i];
    return smallest;
}

/* Somebody meant to limit the device, and nobody knows to what: it gets the smallest limit given, or nothing at all. */
static void close_bad(struct config *config, uint64_t smallest, const bool *bad)
{
    for (int i = 0; i < REGION_DEVICES; i++)
        if (bad[i] && config->memory_limit[i] == 0)
            config->memory_limit[i] = smallest > 0 ? smallest : NOTHING_BYTES;
}

/* The variable of all devices and, with the number behind it, that of each. */
static bool read_each(struct config *config, lookup_fn lookup, parser parse, const char *variable, uint64_t *values, uint64_t general,
                      bool *own, bool *bad)
{
    bool general_present = false, general_bad = !read_limit(config, lookup, parse, variable, &general, &general_present);
    for (int i = 0; i < REGION_DEVICES; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s_%d", variable, i);
        values[i] = general;
        bad[i] = !read_limit(config, lookup, parse, name, &values[i], &own[i]) || general_bad;
    }
    return general_present;
}

static bool any(const bool *values)
{
    for (int i = 0; i < REGION_DEVICES; i++)
        if (values[i])
            return true;
    return false;
}

static void read_memory(struct config *config, lookup_fn lookup, const char *variable, uint64_t general)
{
    bool own[REGION_DEVICES] = {false}, bad[REGION_DEVICES];
    bool general_present = read_each(config, lookup, parse_bytes, variable, config->memory_limit, general, own, bad);
    uint64_t smallest = smallest_limit(config);
    config->any_memory_variable = general_present || any(own);
    close_bad(config, smallest, bad);
    if (!general_present)
        close_gaps(config, smallest, own);
}

static void read_cores(struct config *config, lookup_fn lookup, const char *variable, uint64_t general)
{
    bool own[REGION_DEVICES] = {false}, bad[REGION_DEVICES];
    bool general_present = read_each(config, lookup, parse_percent, variable, config->sm_limit, general, own, bad);
    config->any_sm_variable = general_present || any(own);
}

static bool truth(const char *text)
{
    return text != NULL && (strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0);
}

static enum core_policy read_policy(const char *text)
{
    if (text != NULL && strcasecmp(text, "force") == 0)
        return POLICY_FORCE;
    if (text != NULL && strcasecmp(text, "disable") == 0)
        return POLICY_DISABLE;
    return POLICY_DEFAULT;
}

static uint64_t number_or(const char *text, uint64_t otherwise)
{
    uint64_t value;
    return parse_bytes(text, &value) == LIMIT_GOOD ? value : otherwise;
}

static void read_text(const char *text, char *field, size_t bytes, const char *otherwise)
{
    snprintf(field, bytes, "%s", text != NULL ? text : otherwise);
}

#define READ_LIMIT_BYTES(field, name, otherwise) read_memory(config, lookup, name, otherwise)
#define READ_LIMIT_PERCENT(field, name, otherwise) read_cores(config, lookup, name, otherwise)
#define READ_TEXT(field, name, otherwise) read_text(lookup(name), config->field, sizeof config->field, otherwise)
#define READ_POLICY(field, name, otherwise) config->field = read_policy(lookup(name))
/* Volcano's monitor indexes an array of two by the priority, so nothing else may reach the region. */
#define READ_PRIORITY(field, name, otherwise) config->field = number_or(lookup(name), otherwise) == 0 ? 0 : 1
#define READ_SWITCH(field, name, otherwise) config->field = truth(lookup(name)) || (otherwise)
#define READ_NUMBER(field, name, otherwise) config->field = (__typeof__(config->field))number_or(lookup(name), otherwise)

void config_read(struct config *config, lookup_fn lookup)
{
    memset(config, 0, sizeof *config);
#define OPTION(kind, field, name, unit, otherwise, meaning) READ_##kind(field, #name, otherwise);
#include "../../options.def"
#undef OPTION
    log_set_level(config->log_level);
}

static const char *says_nothing(const char *name)
{
    (void)name;
    return NULL;
}

void config_obey(struct config *config, const struct limits_page *page)
{
    struct config said = *config;
    config_read(config, says_nothing);
    config->log_level = said.log_level;
    config->priority = granted_more(page) != NULL ? granted_more(page)->priority != 0 : said.priority;
    config->oom_killer = said.oom_killer;
    config->arbiter = said.arbiter;
    config->record_interval_s = said.record_interval_s;
    log_set_level(config->log_level);
    config->page = page;
    config->any_memory_variable = config->any_sm_variable = true;
    for (int i = 0; i < REGION_DEVICES; i++) {
        config->memory_limit[i] = granted_memory(page, i);
        config->sm_limit[i] = granted_cores(page, i);
    }
    config->policy = (page->flags & PAGE_NO_CORE_LIMIT) != 0 ? POLICY_DISABLE : POLICY_DEFAULT;
    config->oversubscribe = (page->flags & PAGE_OVERSUBSCRIBE) != 0;
    snprintf(config->region_path, sizeof config->region_path, "%.*s", LIMITS_PAGE_REGION_BYTES, page->region);
}
