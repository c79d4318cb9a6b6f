/* The inside of libcuda.so.1: one process's view of the machine. Hidden. */
#ifndef PUMICE_MACHINE_CUDA_H
#define PUMICE_MACHINE_CUDA_H

#include "core.h"
#include "cuda_api.h"

#include <pthread.h>

/* ---- handles.c: opaque handles that are checked, never followed ---- */
enum kind { K_CONTEXT = 1, K_STREAM, K_EVENT, K_MODULE, K_FUNCTION, K_LIBRARY, K_ARRAY, K_MIPMAP, K_POOL, K_GRAPH, K_NODE,
            K_EXEC, K_PHYSICAL, K_LINK, K_EXTERNAL, K_USER_OBJECT, K_GREEN, K_RESOURCES, K_CONDITION, KINDS };
struct object {
    _Atomic uint32_t generation; /* odd: alive */
    uint32_t index;
    struct object *next_free;
};
void *handle_new(enum kind kind);                    /* the object, zeroed behind its header; NULL: no memory */
void *handle_of(enum kind kind, const void *object); /* the value the program sees */
void *handle_drop(enum kind kind, void *handle);     /* ends it; the object stays readable until it is reused. NULL: no such handle */
size_t handle_size(enum kind kind);
void handle_each(enum kind kind, void (*visit)(void *object, void *arg), void *arg);

#define HANDLE_CHUNK 256u
#define HANDLE_CHUNKS 16384u
struct handle_table {
    char *_Atomic *chunks; /* HANDLE_CHUNKS of them */
    struct object *free;
    uint32_t count;
    pthread_mutex_t mutex;
};
extern struct handle_table handle_tables[KINDS];
extern const size_t handle_sizes[KINDS];

static inline void *handle_get(enum kind kind, const void *handle)
{
    uint64_t v = (uint64_t)handle;
    if (v >> 52 != (0x100u | kind) || !handle_tables[kind].chunks)
        return NULL;
    uint32_t index = v >> 4 & 0xffffff, generation = v >> 28 & 0xffffff;
    char *chunk = index / HANDLE_CHUNK < HANDLE_CHUNKS
                      ? atomic_load_explicit(&handle_tables[kind].chunks[index / HANDLE_CHUNK], memory_order_acquire) : NULL;
    if (!chunk)
        return NULL;
    struct object *o = (struct object *)(void *)(chunk + index % HANDLE_CHUNK * handle_sizes[kind]);
    return (atomic_load_explicit(&o->generation, memory_order_acquire) & 0xffffff) == generation && generation & 1 ? o : NULL;
}

/* ---- init.c ---- */
struct device {
    unsigned card, lane;
    uint32_t gi_id, ci_id;
    uint32_t sm_count;
    unsigned char uuid[16];
};
extern struct cuda_process {
    _Atomic int ready; /* 1 after cuInit */
    bool forked;
    int slot;
    int device_count;
    struct device devices[MACHINE_CARDS];
} cu;
CUresult not_ready(void);
void uuid_bytes(const char *text, unsigned char out[16]); /* of "GPU-..." or "MIG-..." */
static inline CUresult enter(const char *function)
{
    if (__builtin_expect(atomic_load_explicit(&cu.ready, memory_order_acquire) != 1, 0))
        return not_ready();
    return fault_check(function);
}
#define ENTER(function) do { CUresult entered_ = enter(#function); if (entered_) return entered_; } while (0)
#define ENTER_CONTEXT(function, context) \
    ENTER(function); \
    struct context *context = context_current(); \
    do { CUresult usable_ = context_usable(context); if (usable_) return usable_; } while (0)
#define ENTER_DEVICE(function, device) \
    ENTER(function); \
    do { if (device < 0 || device >= cu.device_count) return CUDA_ERROR_INVALID_DEVICE; } while (0)

/* ---- mps.c ---- */
CUresult mps_join(void); /* at cuInit: becomes a client where a control daemon answers */
int mps_visible(struct device *devices, int count); /* keeps those that the server has; how many */
void mps_bind(struct machine_account *account, const struct device *device, int ordinal);

/* ---- context.c ---- */
struct stream {
    struct object o;
    CUcontext context;
    unsigned flags;
    int priority;
    bool green;                  /* of a green context, and of none when that has ended */
    uint64_t id;
    _Atomic uint64_t tail;       /* position of its last work */
    _Atomic uint32_t callbacks;  /* host functions not yet run */
    _Atomic int capture;         /* 0 none, 1 active, 2 invalidated */
    struct capture *capturing;
};
struct context {
    struct object o;
    CUdevice device;
    unsigned card;
    bool primary;
    CUgreenCtx green;        /* a part of the card's processors; all else is its parent's, the primary context */
    CUcontext parent;
    bool legacy_busy;
    unsigned attached;       /* users beyond the first */
    uint32_t peers;          /* cards whose memory its kernels reach, as bits */
    unsigned flags, api_version;
    uint64_t id;
    uint64_t charged;
    size_t limits[16];
    uint64_t settings_bytes; /* what limits above their defaults take */
    uint64_t code_bytes;     /* of functions that are loaded */
    int cache_config, shared_config;
    struct stream *legacy;
};
extern const size_t context_default_limits[16];
struct context *context_current(void);   /* where memory and code lie: of a green context the primary one */
CUcontext context_current_handle(void);
CUcontext context_on_top(void);          /* what the program made current */
struct context *context_chosen(void);    /* that, green or not */
CUresult context_usable(const struct context *context); /* INVALID_CONTEXT, CONTEXT_IS_DESTROYED, UNKNOWN (lost) or success */
struct context *context_of(CUcontext handle);
CUresult context_make(CUdevice device, unsigned flags, unsigned api, bool is_primary, CUcontext *out);
void context_end(CUcontext handle);
struct context *primary_of(CUdevice device); /* NULL: not active; primary_context.c */

/* ---- stream.c, event.c ---- */
struct stream *stream_of(CUstream handle, struct context *context); /* 0, legacy, per-thread or a handle; NULL: invalid */
CUresult stream_missing(CUstream handle); /* why there is none: no handle, or its green context has ended */
CUresult stream_make(CUstream *out, CUcontext context, unsigned flags, int priority);
CUresult stream_wait(struct stream *stream);
uint64_t stream_submit(struct stream *stream, unsigned card, uint64_t ns); /* position of its end */
CUresult stream_drain_callbacks(struct stream *stream);
CUresult context_wait(struct context *context);
void streams_of_context_end(CUcontext context);
void streams_of_green_end(CUcontext context); /* they stay, and serve no more */
void streams_of_context_wait_for(CUcontext context, uint64_t position);
bool streams_of_context_captured(CUcontext context); /* which ends the captures */
struct event;
void event_harvest(unsigned card, uint32_t mark);

/* ---- heap.c: device memory ---- */
enum memory_kind { M_DEVICE = 1, M_MANAGED, M_HOST, M_REGISTERED, M_RESERVED, M_MAPPED, M_POOL, M_IMPORTED };
struct advice { bool read_mostly; CUmemLocation preferred, prefetched; uint32_t accessed_by; }; /* managed.c */
struct block {
    struct advice advice;
    uint64_t address, size;   /* as the program sees it */
    uint64_t extent, physical;/* place in the arena; bytes charged */
    char *data;               /* where its bytes are; NULL: nowhere (reserved) */
    enum memory_kind kind;
    unsigned card, flags;
    CUcontext context;
    void *owner;              /* handle of the pool, physical handle, … */
    uint64_t id;
    uint64_t position;        /* freed asynchronously: when its stream is there */
    bool small;
    bool managed, on_host;    /* of a pool of such memory */
    struct chunk *chunk;      /* of a small one */
    uint32_t share;           /* several processes hold it; of a small one the chunk is shared */
    uint64_t share_id;
    int access;
};
CUresult heap_alloc(unsigned card, CUcontext context, uint64_t size, enum memory_kind kind, struct block **out);
CUresult heap_free(uint64_t address, enum memory_kind kind); /* the block must begin there; pool memory: pool.c */
void heap_free_block(struct block *block);
bool heap_find(uint64_t address, struct block *out);         /* a copy of the block that holds the address */
bool heap_covers(uint64_t address, uint64_t size, struct block *out);
struct block *heap_enter(struct block block);                /* a record of memory that others own; NULL: overlaps */
bool heap_leave(uint64_t address, enum memory_kind kind, struct block *out);
bool heap_change(uint64_t address, void (*change)(struct block *, void *), void *arg);
static inline bool block_managed(const struct block *b) { return b->kind == M_MANAGED || b->managed; }
void heap_each(void (*visit)(struct block *, void *), void *arg);
void heap_end_context(CUcontext context);
bool heap_share(uint64_t address, struct block *out);        /* share, share_id and physical are what others may join; false: no room */
bool extent_take(uint64_t bytes, uint64_t *extent);          /* room in the arena, 2 MiB units */
void extent_give(uint64_t extent, uint64_t bytes);
char *extent_data(uint64_t extent);
uint64_t extent_address(uint64_t extent);
int arena_descriptor(void);
bool arena_touched(const char *from, uint64_t bytes, const char **at, uint64_t *length);
bool arena_forget(const char *from, uint64_t bytes);
CUresult copy_bytes(void *to, const void *from, size_t bytes); /* INVALID_VALUE instead of a fault */
uint64_t copy_time(uint64_t bytes);

/* ---- module.c ---- */
struct parameter { uint32_t offset, size; };
enum kernel_time { T_OWN, T_FIRST_NS, T_FIRST_NS_OF_BLOCK, T_FIRST_CYCLES }; /* what the first parameter says of its time */
struct function {
    struct object o;
    CUmodule module;      /* or the library */
    const char *name;
    const struct parameter *parameters; /* of the module's kernel */
    unsigned parameter_count;
    uint64_t ns;          /* of one launch */
    enum kernel_time time_of;
    int attributes[16];
    int regs;
    uint64_t cost_key;
};
uint64_t function_time(const struct function *f, uint64_t blocks, void **params, void **extra, unsigned card);
void modules_of_context_end(CUcontext context);

/* ---- peer.c ---- */
bool devices_peers(CUdevice one, CUdevice other); /* either could reach the other's memory */

/* ---- green_time.c ---- */
uint64_t green_time(const struct stream *stream, uint64_t ns, uint64_t blocks); /* of a kernel that takes ns on the whole card */
uint64_t green_submit(const struct stream *stream, unsigned card, uint64_t ns, uint64_t after);
uint64_t green_end_of(CUgreenCtx green); /* position of the end of all that it was given */
void green_wait_for(CUcontext context, uint64_t position); /* what that is green, or the green ones of it, will be given */

/* ---- proc_address.c ---- */
CUresult symbol_look_up(const char *name, void **out, int version, uint64_t flags, int *status);

/* ---- launch.c, graph.c ---- */
CUresult launch(const struct function *f, struct stream *stream, unsigned card, uint64_t blocks, void **params, void **extra);
bool capture_active(struct stream *stream);
CUresult capture_kernel(struct stream *stream, const CUDA_KERNEL_NODE_PARAMS *params);
struct node;
uint64_t moving_time(const struct node *n);
CUresult capture_node(struct stream *stream, const struct node *like);
void pools_settle(void); /* at a synchronisation: gives back what pools hold above their threshold */
CUresult capture_join(struct stream *stream, CUevent event); /* the stream waits for an event of a capture */
CUresult capture_forbids(void); /* code for a call that no capture of this thread allows, or success */

#define PER_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

#endif
