/* The objects behind the handles, beyond contexts, streams and functions (cuda.h). */
#ifndef PUMICE_MACHINE_OBJECTS_H
#define PUMICE_MACHINE_OBJECTS_H

#include "cuda.h"

struct event {
    struct object o;
    CUcontext context;
    unsigned flags, card;
    bool recorded, captured;
    bool pending;            /* its moment is still in a mark */
    uint32_t mark;
    uint64_t position, time;
    void *capture;           /* of the stream it was recorded in while that was captured */
    struct event_note *note; /* shared with other processes */
    uint64_t note_id;
};

struct kernel_text {
    const char *name;
    uint64_t ns, code;
    int regs, smem, local, constants;
    enum kernel_time time_of;
    bool loaded;
    CUfunction function;
    struct parameter *parameters;
    unsigned parameter_count;
};
struct global_text {
    const char *name;
    uint64_t bytes;
    uint64_t address;
    char *initial;           /* what its memory begins with; NULL: nothing said */
    bool managed;
};
/* A module of a context, or a library (context NULL). */
struct module {
    struct object o;
    CUcontext context;
    struct kernel_text *kernels;
    size_t kernel_count;
    struct global_text *globals;
    size_t global_count;
    bool opaque;             /* machine code whose names cannot be read: has every name */
    pthread_mutex_t mutex;
};

struct array {
    struct object o;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    unsigned levels, card;
    CUcontext context;
    uint64_t address, pitch, bytes;
    CUmipmappedArray parent; /* of a level: it owns no memory */
};

struct pool {
    struct object o;
    unsigned card;
    CUdevice device;
    bool built_in, imported, host, managed;
    uint64_t reserved, reserved_high, used, used_high, threshold, max_size;
    uint64_t reuse[3];
    CUmemPoolProps props;
    int access[MACHINE_CARDS];
    pthread_mutex_t mutex;
    struct pool_free *free;
    uint32_t exporter;       /* of an imported one: whose it is, and what it is there */
    CUmemoryPool exported;
};

struct physical {
    struct object o;
    CUmemAllocationProp props;
    unsigned card;
    uint64_t size, extent;
    uint32_t references, mappings;
    uint32_t share;          /* 0: nobody else may hold it */
    uint64_t share_id;
    bool imported, on_device;
    int import_fd;
    char *import_data;
    struct team *team;       /* a multicast object, which is no memory; multicast.c */
    struct binding *bindings;
};

enum node_type { N_KERNEL = 0, N_MEMCPY = 1, N_MEMSET = 2, N_HOST = 3, N_GRAPH = 4, N_EMPTY = 5, N_WAIT = 6, N_RECORD = 7,
                 N_ALLOC = 10, N_FREE = 11, N_CONDITION = 13 };
/* A condition. A kernel sets its value; here it keeps the one with which it begins (graph_condition.c). */
struct condition { struct object o; CUgraph graph; CUcontext context; unsigned initial; CUgraphConditionalHandle next; };
struct condition_params { CUgraphConditionalHandle condition; int type; unsigned size; CUgraph *bodies; CUcontext context; };
struct node {
    struct object o;
    CUgraph graph;
    CUgraphNode next;        /* in the graph, in order of creation */
    unsigned number;         /* in its graph, from 0, and never given again */
    int type;
    CUgraphNode *after;
    size_t after_count;
    uint64_t ns;             /* of a kernel or a copy */
    CUDA_KERNEL_NODE_PARAMS kernel;
    CUDA_HOST_NODE_PARAMS host;
    CUDA_MEMSET_NODE_PARAMS memset;
    CUDA_MEMCPY3D copy;
    CUDA_MEM_ALLOC_NODE_PARAMS alloc;
    CUdeviceptr freed;
    CUgraph child;
    CUevent event;
    struct condition_params condition;
    CUgraphNode twin;        /* while its graph is cloned */
};
struct user_object { struct object o; _Atomic uint64_t references; CUhostFn destroy; void *data; };
struct held { struct held *next; CUuserObject object; uint64_t count; };
struct graph {
    struct object o;
    CUgraphNode first, last;
    size_t count;
    unsigned card;
    CUcontext context;
    unsigned number;         /* of all graphs of the process, executable ones among them */
    unsigned nodes_made;
    struct held *held;       /* user objects, with references of its own */
    CUgraph parent;          /* of a node's graph: nobody else ends it */
    bool body;               /* of a condition */
    CUgraphConditionalHandle conditions;
};
struct step { int type; uint64_t ns; bool launch; CUDA_HOST_NODE_PARAMS host; CUDA_MEMSET_NODE_PARAMS memset; CUDA_MEMCPY3D copy;
              CUevent event; CUgraphNode node; CUdeviceptr address; };
struct graph_exec {
    struct object o;
    CUgraph graph;
    struct step *steps;
    size_t count, kernels;
    uint64_t ns;
    uint64_t *alloc_addresses;
    size_t alloc_count;
    unsigned number;
    unsigned flags;
    CUcontext context;
    struct held *held;
};

struct capture {
    CUgraph graph;
    bool made;               /* by the capture, not the program's */
    CUgraphNode last;
    struct stream *origin;
    int mode;                /* 0 global, 1 thread-local, 2 relaxed */
    uint64_t id;
    pthread_t thread;
};

/* graph_memory.c: memory of allocation nodes. Reserved at capture, charged at the first launch, kept until trimmed. */
CUresult graph_memory_reserve(CUDA_MEM_ALLOC_NODE_PARAMS *params, unsigned card);
CUresult graph_memory_use(CUdeviceptr address);
void graph_memory_unuse(CUdeviceptr address);

struct link { struct object o; char *text; size_t size; };
struct external { struct object o; uint64_t bytes; };

#endif
