#include "book/records.h"

#include "core/after_fork.h"
#include "core/waits.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 64, FIRST_CAPACITY = 64 };

/* Open addressing with linear probing; capacity is a power of two, at most two thirds full. */
struct shard {
    pthread_mutex_t lock;
    struct record *table;
    uint64_t capacity, count;
} __attribute__((aligned(64)));

static struct shard shards[SHARDS] = {[0 ... SHARDS - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};
FORGET_IN_CHILD(shards);

static uint64_t mix(enum record_kind kind, uint64_t key)
{
    uint64_t hash = (key ^ ((uint64_t)kind << 56)) * 0x9e3779b97f4a7c15ull;
    return hash ^ (hash >> 29);
}

static struct shard *lock_shard(uint64_t hash)
{
    struct shard *shard = &shards[hash % SHARDS];
    mutex_take(&shard->lock);
    return shard;
}

static void unlock_shard(struct shard *shard)
{
    pthread_mutex_unlock(&shard->lock);
}

static uint64_t home_of(const struct shard *shard, uint64_t hash)
{
    return (hash / SHARDS) & (shard->capacity - 1);
}

/* The place of the key, or the free place where it belongs. The table is never full. */
static struct record *place_of(const struct shard *shard, enum record_kind kind, uint64_t key, uint64_t hash)
{
    uint64_t at = home_of(shard, hash);
    while (shard->table[at].kind != RECORD_NONE && (shard->table[at].kind != kind || shard->table[at].key != key))
        at = (at + 1) & (shard->capacity - 1);
    return &shard->table[at];
}

static bool grow(struct shard *shard)
{
    struct shard larger = *shard;
    larger.capacity = shard->capacity == 0 ? FIRST_CAPACITY : shard->capacity * 2;
    larger.table = calloc(larger.capacity, sizeof *larger.table);
    if (larger.table == NULL)
        return false;
    for (uint64_t i = 0; i < shard->capacity; i++) {
        const struct record *record = &shard->table[i];
        if (record->kind != RECORD_NONE)
            *place_of(&larger, record->kind, record->key, mix(record->kind, record->key)) = *record;
    }
    free(shard->table);
    shard->table = larger.table;
    shard->capacity = larger.capacity;
    return true;
}

/* Closes the hole by moving back what had to step over it, so that no marks of deleted entries pile up. */
static void erase(struct shard *shard, struct record *hole)
{
    uint64_t mask = shard->capacity - 1, empty = (uint64_t)(hole - shard->table);
    for (uint64_t at = (empty + 1) & mask; shard->table[at].kind != RECORD_NONE; at = (at + 1) & mask) {
        uint64_t home = home_of(shard, mix(shard->table[at].kind, shard->table[at].key));
        if (((at - home) & mask) >= ((at - empty) & mask)) {
            shard->table[empty] = shard->table[at];
            empty = at;
        }
    }
    shard->table[empty].kind = RECORD_NONE;
    shard->count--;
}

static struct record *find_in(struct shard *shard, enum record_kind kind, uint64_t key, uint64_t hash)
{
    if (shard->count == 0)
        return NULL;
    struct record *place = place_of(shard, kind, key, hash);
    return place->kind != RECORD_NONE ? place : NULL;
}

/* The record with its shard locked, until unlock_shard; NULL: there is none. */
static struct record *hold(enum record_kind kind, uint64_t key, struct shard **shard)
{
    uint64_t hash = mix(kind, key);
    *shard = lock_shard(hash);
    return find_in(*shard, kind, key, hash);
}

/* The shard's lock held. */
static bool enter(struct shard *shard, const struct record *record)
{
    if ((shard->count + 1) * 3 > shard->capacity * 2 && !grow(shard))
        return false;
    struct record *place = place_of(shard, record->kind, record->key, mix(record->kind, record->key));
    shard->count += place->kind == RECORD_NONE;
    *place = *record;
    return true;
}

bool records_insert(const struct record *record)
{
    struct shard *shard = lock_shard(mix(record->kind, record->key));
    bool entered = enter(shard, record);
    unlock_shard(shard);
    return entered;
}

bool records_join(const struct record *record)
{
    struct shard *shard;
    struct record *place = hold(record->kind, record->key, &shard);
    bool there = place != NULL;
    if (there)
        place->references++;
    else
        enter(shard, record);
    unlock_shard(shard);
    return there;
}

bool records_add(const struct record *record)
{
    struct shard *shard;
    struct record *place = hold(record->kind, record->key, &shard);
    if (place != NULL)
        place->bytes += record->bytes;
    bool kept = place != NULL || enter(shard, record);
    unlock_shard(shard);
    return kept;
}

uint64_t records_take(enum record_kind kind, uint64_t key, uint64_t bytes)
{
    uint64_t taken = 0;
    struct shard *shard;
    struct record *place = hold(kind, key, &shard);
    if (place != NULL) {
        taken = bytes < place->bytes ? bytes : place->bytes;
        place->bytes -= taken;
    }
    unlock_shard(shard);
    return taken;
}

bool records_remove(enum record_kind kind, uint64_t key, struct record *removed)
{
    struct shard *shard;
    struct record *place = hold(kind, key, &shard);
    if (place != NULL) {
        *removed = *place;
        erase(shard, place);
    }
    unlock_shard(shard);
    return place != NULL;
}

bool records_find(enum record_kind kind, uint64_t key, struct record *found)
{
    struct shard *shard;
    struct record *place = hold(kind, key, &shard);
    if (place != NULL)
        *found = *place;
    unlock_shard(shard);
    return place != NULL;
}

static uint32_t moved(uint32_t count, int by)
{
    return by < 0 && count < (uint32_t)-by ? 0 : count + (uint32_t)by;
}

bool records_count(enum record_kind kind, uint64_t key, int references, int mappings, struct record *ended)
{
    struct shard *shard;
    struct record *place = hold(kind, key, &shard);
    bool over = false;
    if (place != NULL) {
        place->references = moved(place->references, references);
        place->mappings = moved(place->mappings, mappings);
        over = place->references == 0 && place->mappings == 0;
        if (over) {
            *ended = *place;
            erase(shard, place);
        }
    }
    unlock_shard(shard);
    return over;
}

bool records_join_up(enum record_kind kind, uint64_t key, uint32_t shared_allocation)
{
    struct shard *shard;
    struct record *place = hold(kind, key, &shard);
    bool changed = place != NULL && place->shared_allocation == 0;
    if (changed)
        place->shared_allocation = shared_allocation;
    unlock_shard(shard);
    return changed;
}

bool records_charge(enum record_kind kind, uint64_t key, uint64_t bytes)
{
    struct shard *shard;
    struct record *place = hold(kind, key, &shard);
    bool changed = place != NULL && !place->charged;
    if (changed) {
        place->charged = 1;
        place->bytes = bytes;
    }
    unlock_shard(shard);
    return changed;
}

void records_drop_owner(uint64_t owner, void (*each)(const struct record *record))
{
    for (int i = 0; i < SHARDS; i++) {
        struct shard *shard = &shards[i];
        mutex_take(&shard->lock);
        for (uint64_t at = 0; at < shard->capacity;) {
            struct record *record = &shard->table[at];
            if (record->kind == RECORD_NONE || record->kind == RECORD_MAPPING || record->kind == RECORD_HANDLE ||
                record->owner != owner) {
                at++;
                continue;
            }
            each(record);
            erase(shard, record); /* may move another record here: look at the same place again */
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

uint64_t records_live(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < SHARDS; i++) {
        mutex_take(&shards[i].lock);
        sum += shards[i].count;
        pthread_mutex_unlock(&shards[i].lock);
    }
    return sum;
}

