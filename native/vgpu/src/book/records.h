/*
 * The memory that this process holds: one record per allocation, handle, mapping or context, found by its key in constant time.
 *
 * Sharded hash tables; a shard's lock is held for a look-up or an insertion and never across a driver call.
 */
#ifndef VGPU_RECORDS_H
#define VGPU_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

enum record_kind {
    RECORD_NONE, RECORD_LINEAR,  /* key: device pointer; bytes as booked, or as asked for where they share a block; mappings: managed memory stands in for it */
    RECORD_BLOCK,   /* key: address of a block that small allocations share; references: how many do, bytes: their size class */
    RECORD_ARRAY,   /* key: array or mipmapped array handle */
    RECORD_HANDLE,  /* key: VMM handle; references and mappings count */
    RECORD_MAPPING, /* key: mapped address; owner: the handle */
    RECORD_CONTEXT, /* key: context handle */
    RECORD_GREEN,   /* key: context of a green one; owner: the primary context, whose its memory is */
    RECORD_EXEC,    /* key: executable graph x REGION_DEVICES + device; bytes its launches may take there */
    RECORD_MODULE,  /* key: module or library; bytes as NVML measured its load, mappings: blocks that it may have with data */
    RECORD_LIMITS,  /* key: context, whose stacks, buffers and heaps have grown by so many bytes */
    RECORD_POOL,    /* key: memory pool; bytes: where it is described */
    RECORD_EXTERNAL, /* key: memory of another interface */
    RECORD_POOLED,  /* key: device pointer into a pool; owner: where the pool is described */
};

struct record {
    uint64_t key;
    uint64_t bytes;
    uint64_t owner; /* context of an allocation, handle of a mapping */
    uint32_t references;
    uint32_t mappings;
    int16_t device;
    uint8_t kind;
    uint8_t charged; /* 0: in a shared block, which pays, or nobody knows what it takes */
    uint32_t shared_allocation;  /* several processes may hold it, and that is where it is given back (core/shared_allocations.h); 0: this one alone */
};

/* False without memory for it. A record of the same kind and key is replaced. */
bool records_insert(const struct record *record);
bool records_remove(enum record_kind kind, uint64_t key, struct record *removed);
bool records_find(enum record_kind kind, uint64_t key, struct record *found);

/* One reference more to what is there, or the record as it is given: true when it was there. */
bool records_join(const struct record *record);

/* Bytes more for what is there, or the record as it is given; false without memory for it. */
bool records_add(const struct record *record);
/* At most so many bytes fewer: how many. */
uint64_t records_take(enum record_kind kind, uint64_t key, uint64_t bytes);

/* Adds to references and mappings; when both are zero the record is removed and handed out: true then. */
bool records_count(enum record_kind kind, uint64_t key, int references, int mappings, struct record *ended);

/* The record belongs to a shared allocation from now on; false: it is gone, or belongs to one already. */
bool records_join_up(enum record_kind kind, uint64_t key, uint32_t shared_allocation);

/* Charges a record that was not charged, with so many bytes; false: it is gone, or was charged. */
bool records_charge(enum record_kind kind, uint64_t key, uint64_t bytes);

/* Removes everything that belongs to an owner, calling each for it. */
void records_drop_owner(uint64_t owner, void (*each)(const struct record *record));

uint64_t records_live(void);

#endif
