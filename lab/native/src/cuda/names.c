/* Names of kernels and variables, of any length: each is kept once and for ever, so that a handle may outlive its module. */
#include "image.h"

#include <stdlib.h>
#include <string.h>

struct kept { struct kept *next; size_t length; char text[]; };
static struct kept *buckets[4096];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

const char *name_kept(const char *from, size_t length)
{
    size_t hash = 5381;
    for (size_t i = 0; i < length; i++)
        hash = hash * 33 ^ (unsigned char)from[i];
    struct kept **bucket = &buckets[hash % (sizeof buckets / sizeof *buckets)];
    pthread_mutex_lock(&mutex);
    struct kept *k = *bucket;
    while (k && (k->length != length || memcmp(k->text, from, length) != 0))
        k = k->next;
    if (!k && (k = malloc(sizeof *k + length + 1))) {
        k->next = *bucket;
        k->length = length;
        memcpy(k->text, from, length);
        k->text[length] = 0;
        *bucket = k;
    }
    pthread_mutex_unlock(&mutex);
    return k ? k->text : NULL;
}
