/*
 * PTX: ".visible .global .align 8 .b8 name[16][4] = {…}, other;" at the outermost level is a variable. Only its head is looked
 * at, up to what initializes it; functions and comments are passed over.
 */
#include "book/image.h"
#include "core/numbers.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 4096, STATEMENT = 4096 };
#define CODE_PER_TEXT 2u /* translated code is seldom longer than its text; unrolled loops are */

struct reader {
    char statement[STATEMENT];
    size_t length;
    unsigned depth;     /* of braces */
    bool initializer;   /* behind the equals sign of a declaration */
    enum { CODE, SLASH, LINE_COMMENT, BLOCK_COMMENT, STAR } at;
    struct image_need need;
};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' || c == '%';
}

/* ".b8" is 1 byte, ".f64" 8, ".f16x2" 4; 0: no type. */
static uint64_t width_of(const char *word)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } types[] = {{".b8", 1},   {".s8", 1},   {".u8", 1},  {".b16", 2}, {".s16", 2},    {".u16", 2},     {".f16", 2}, {".bf16", 2},
                 {".b32", 4},  {".s32", 4},  {".u32", 4}, {".f32", 4}, {".f16x2", 4},  {".bf16x2", 4},  {".b64", 8}, {".s64", 8},
                 {".u64", 8},  {".f64", 8},  {".b128", 16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(word, types[i].name) == 0)
            return types[i].bytes;
    return 0;
}

/* The next word, ".name" or "name" or a number, with what stands before it passed over; false at the end. */
static bool next_word(const char **at, char *word, size_t bytes)
{
    size_t length = 0;
    while (**at != '\0' && **at != '.' && **at != '[' && **at != ',' && !is_name(**at))
        ++*at;
    if (**at == '[' || **at == ',')
        word[length++] = *(*at)++;
    else if (**at == '.' || is_name(**at))
        do
            word[length++] = *(*at)++;
        while (length + 1 < bytes && is_name(**at));
    word[length] = '\0';
    return length > 0;
}

/* Every comma outside of brackets begins another variable of the same type. */
static void declare(struct image_need *need, const char *at)
{
    char word[64];
    uint64_t width = 0, vector = 1, count = 1, sum = 0, pieces = 0;
    bool global = false, named = false;
    while (next_word(&at, word, sizeof word)) {
        if (strcmp(word, ".extern") == 0)
            return;
        global |= strcmp(word, ".global") == 0;
        if (strcmp(word, ".v2") == 0 || strcmp(word, ".v4") == 0) {
            vector = (uint64_t)(word[2] - '0');
        } else if (strcmp(word, ".align") == 0) {
            next_word(&at, word, sizeof word);
        } else if (word[0] == '[') {
            count = mul_u64(count, strtoull(at, NULL, 0));
            at += strcspn(at, "]");
        } else if (word[0] == ',') {
            sum += named ? mul_u64(mul_u64(width, vector), count) : 0;
            pieces += named;
            named = false;
            count = 1;
        } else if (word[0] == '.') {
            width = width_of(word) != 0 ? width_of(word) : width;
        } else {
            named = true;
        }
    }
    sum += named ? mul_u64(mul_u64(width, vector), count) : 0;
    if (!global || width == 0 || sum >= 1ull << 50)
        return;
    need->variables += sum;
    need->pieces += pieces + named;
}

static void end_of_statement(struct reader *reader)
{
    reader->statement[reader->length] = '\0';
    declare(&reader->need, reader->statement);
    reader->length = 0;
    reader->initializer = false;
}

static void take_code(struct reader *reader, char c)
{
    if (c == '{') {
        reader->depth++;
        if (!reader->initializer) /* a function's body, not a variable's value */
            reader->length = 0;
    } else if (c == '}') {
        reader->depth -= reader->depth > 0;
    } else if (reader->depth == 0 && c == ';') {
        end_of_statement(reader);
    } else if (reader->depth == 0 && c == '=') {
        reader->initializer = true;
    } else if (reader->depth == 0 && c == ',' && reader->initializer) {
        reader->initializer = false; /* the next variable */
        if (reader->length + 1 < STATEMENT)
            reader->statement[reader->length++] = c;
    } else if (reader->depth == 0 && !reader->initializer && reader->length + 1 < STATEMENT) {
        /* Directives such as .version end with their line: what is left of them at the front of a statement is harmless. */
        reader->statement[reader->length++] = c;
    }
}

static void take(struct reader *reader, char c)
{
    switch (reader->at) {
    case CODE:
        if (c == '/')
            reader->at = SLASH;
        else
            take_code(reader, c);
        break;
    case SLASH:
        reader->at = c == '/' ? LINE_COMMENT : c == '*' ? BLOCK_COMMENT : CODE;
        break;
    case LINE_COMMENT:
        reader->at = c == '\n' ? CODE : LINE_COMMENT;
        break;
    default:
        reader->at = reader->at == STAR && c == '/' ? CODE : c == '*' ? STAR : BLOCK_COMMENT;
    }
}

struct image_need image_of_ptx(const struct source *source, uint64_t at, uint64_t most)
{
    static const char sign[] = ".version";
    struct reader reader = {.length = 0};
    char chunk[CHUNK];
    size_t matched = 0, got;
    uint64_t length = 0;
    bool ended = false;
    while (!ended && length < most && (got = source_read_some(source, at + length, chunk, CHUNK)) > 0)
        for (size_t i = 0; i < got && !(ended = chunk[i] == '\0' || length >= most); i++, length++) {
            if (sign[matched] != '\0')
                matched = chunk[i] == sign[matched] ? matched + 1 : chunk[i] == sign[0];
            if ((unsigned char)chunk[i] >= 0x80 && reader.at == CODE)
                return IMAGE_SILENT;
            take(&reader, chunk[i]);
        }
    reader.need.known = sign[matched] == '\0';
    reader.need.code = length * CODE_PER_TEXT;
    reader.need.translated = true;
    return reader.need.known ? reader.need : IMAGE_SILENT;
}
