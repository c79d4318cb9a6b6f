/*
 * What comes from outside, made up: heads of region files and limit texts. No verdict may promise more than the size holds,
 * and no text may crash the parser or yield a number that it does not say.
 *
 * VGPU_FUZZ sets the number of inputs (default one million; the benchmark runs 10^8).
 */
#include "check.h"
#include "core/config.h"
#include "core/region_format.h"

static uint64_t state = 88172645463325252ull;

static uint64_t dice(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint32_t likely(const uint32_t *values, unsigned count)
{
    uint64_t throw = dice();
    return throw % 4 == 0 ? (uint32_t)(throw >> 32) : values[(throw >> 8) % count];
}

static off_t some_size(void)
{
    static const off_t sizes[] = {0, 12, 804681, REGION_V0_BYTES + 1, REGION_V1_BYTES, REGION_V1_BYTES + 1, REGION_V1_BAD_B_BYTES + 1,
                                  REGION_EXT_OFFSET, REGION_FILE_BYTES, REGION_FILE_BYTES + 4096, REGION_WHOLE_BYTES};
    uint64_t throw = dice();
    return throw % 3 == 0 ? (off_t)(throw >> 40) : sizes[(throw >> 8) % (sizeof sizes / sizeof *sizes)] + (off_t)(throw >> 61) - 3;
}

static void judge_one(void)
{
    static const uint32_t magics[] = {REGION_MAGIC, 0}, majors[] = {1, 0, 2}, minors[] = {2, 1, 0}, ext_magics[] = {EXT_MAGIC, 0},
                          versions[] = {EXT_VERSION, 0}, sizes[] = {REGION_EXT_BYTES, 0};
    uint32_t head[3] = {likely(magics, 2), likely(majors, 3), likely(minors, 3)};
    uint32_t ext[3] = {likely(ext_magics, 2), likely(versions, 2), likely(sizes, 2)};
    off_t bytes = some_size();
    struct region_probe probe = region_judge(head, bytes >= (off_t)REGION_FILE_BYTES ? ext : NULL, bytes);
    CHECK(probe.kind >= KIND_EMPTY && probe.kind <= KIND_FOREIGN);
    /* What is mapped and trusted must lie inside the file. */
    if (probe.kind == KIND_OURS)
        CHECK(bytes >= (off_t)REGION_FILE_BYTES && head[0] == REGION_MAGIC && ext[0] == EXT_MAGIC);
    if (probe.kind == KIND_UPSTREAM)
        CHECK(bytes >= (off_t)REGION_V1_BYTES && head[1] == 1 && head[2] == 2);
    if (probe.layout == 0)
        CHECK(bytes > (off_t)REGION_V0_BYTES);
    if (probe.layout > 0)
        CHECK(bytes >= (off_t)REGION_V1_BYTES);
    if (probe.kind == KIND_EMPTY) /* would be formatted: never somebody's file of an odd size */
        CHECK(bytes == 0 || bytes == (off_t)REGION_V1_BYTES + 1 || bytes == (off_t)REGION_FILE_BYTES ||
              bytes == (off_t)REGION_WHOLE_BYTES);
}

static void parse_one(void)
{
    static const char letters[] = "0123456789 xX.kKmMgGtTiIbB%-+\t\377";
    char text[16];
    unsigned length = (unsigned)(dice() % sizeof text);
    for (unsigned i = 0; i < length; i++)
        text[i] = letters[dice() % (sizeof letters - 1)];
    text[length < sizeof text ? length : sizeof text - 1] = '\0';
    uint64_t value = 0xfeed;
    enum limit_verdict verdict = parse_bytes(text, &value);
    CHECK(verdict == LIMIT_GOOD || value == 0xfeed);
    CHECK(verdict != LIMIT_GOOD || (strchr(text, '-') == NULL && strchr(text, '+') == NULL && strpbrk(text, "0123456789") != NULL));
    verdict = parse_percent(text, &value);
    CHECK(verdict != LIMIT_GOOD || strpbrk(text, "kKmMgGtTiI-+.") == NULL);
}

int main(void)
{
    uint64_t inputs = getenv("VGPU_FUZZ") != NULL ? strtoull(getenv("VGPU_FUZZ"), NULL, 10) : 1000000;
    for (uint64_t i = 0; i < inputs / 2 && check_failures == 0; i++) {
        judge_one();
        parse_one();
    }
    return check_result("fuzz");
}
