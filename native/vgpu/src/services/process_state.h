/*
 * The library in this process: attached to the container's region since the first use of the GPU, knowing
 * which driver device is which index of the region, and keeping out of the way in every other state.
 */
#ifndef VGPU_PROCESS_STATE_H
#define VGPU_PROCESS_STATE_H

#include "book/records.h"
#include "core/config.h"
#include "core/region_map.h"
#include "driver/real.h"
#include "policy/backend.h"

enum { ORDINALS = 64 };

struct process_state {
    struct region_map map;
    struct config config;
    int device_count;                 /* CUDA devices of this process; 0 while unknown */
    int16_t index_of[ORDINALS];       /* CUDA ordinal -> index of the region, -1 = unlimited */
    int16_t ordinal_of[REGION_DEVICES];
};

extern struct process_state process_state;
extern int process_attached;

/* Attaches if that has not happened; false when even private memory for the books cannot be had. */
bool process_attach(void);

/* Returns whether a hook should do its work: called by the program itself, and the region is there. */
static inline bool process_serves(void)
{
    if (__builtin_expect(inside_driver != 0, 0))
        return false;
    return __builtin_expect(__atomic_load_n(&process_attached, __ATOMIC_ACQUIRE), 1) || process_attach();
}

/* This process's books; NULL: it has none, or ends. */
static inline struct region_slot *process_slot(void)
{
    return region_has_books(&process_state.map) ? region_own(&process_state.map) : NULL;
}

/* Region index of a CUDA device, -1 when it has none and so no limits. */
int process_device(CUdevice device);

/* Region index of the device that memory of this location is on, -1 when it is on none. */
struct mem_location;
int process_location(const struct mem_location *location);

/* Region index of the device of the current context, -1 without one. */
int process_current_device(void);

/* Region index for an NVML device, -1 when it is none of the region's. */
int process_nvml_device(nvmlDevice device);

/* NVML's device of an index of the region; false when it has none. */
bool process_nvml_handle(int device, nvmlDevice *handle);

/* devices.c: who is who; filled when CUDA, or NVML, has been initialised. */
void devices_from_cuda(void);
void devices_tell_again(void); /* under a limits page: the region's names are those that this process knows */
void devices_name(void); /* asks NVML for the cards' names, unless this process knows them */

/* ---- booking, shared by all allocating hooks ---- */

/* Reserves, after giving every chance to memory that pools no longer need and that may be free by now. */
bool process_reserve_as(int device, enum memory_type type, uint64_t bytes);

/* The same for data, noticing a context that was made unseen; a refusal is one line. */
bool process_reserve(int device, uint64_t bytes);
bool process_reserve_silently(int device, enum memory_type type, uint64_t bytes);
void process_release(int device, uint64_t bytes);
void process_tell_refusal(int device, uint64_t bytes); /* 0 bytes: nobody knows how many it would have been */

/* Records that this process holds the memory from now on. charged: false where something else pays for it. */
void process_note(enum record_kind kind, uint64_t key, int device, uint64_t bytes, bool charged);
uint64_t process_current_context(void);

/* After the driver's answer: a record on success, the booking back on failure. Returns the answer. */
CUresult process_commit(CUresult rc, enum record_kind kind, uint64_t key, int device, uint64_t bytes);

/* The freeing half: take the record, let the driver free, give back; or put the record back when the driver refuses. */
/* Gives bytes that the driver freed back to the process that booked them. */
void process_gone(const struct record *record);

/*
 * Mark a thread as between its booking and the driver: allocations are booked before they happen, frees after, and what NVML measures
 * meanwhile is less than what is booked. Around booking, call and commit, or the other way round. Of a device below 0 nothing is noted.
 */
void underway_begin(int device);
void underway_end(int device);
bool underway_nobody_else(int device); /* but this thread */

/* Books before the driver's call and commits after it. */
#define BOOKED(device, bytes, kind, key, call) \
    __extension__({ \
        CUresult answer = CUDA_ERROR_OUT_OF_MEMORY; \
        underway_begin(device); \
        if (process_reserve(device, bytes)) { \
            answer = call; \
            process_commit(answer, kind, (uint64_t)(uintptr_t)(key), device, bytes); \
        } \
        underway_end(device); \
        answer; \
    })

struct parting {
    struct record record;
    bool known;
};
struct parting process_part(enum record_kind kind, uint64_t key);
CUresult process_parted(CUresult rc, const struct parting *parting);

#endif
