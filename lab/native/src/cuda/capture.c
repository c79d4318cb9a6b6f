/* Stream capture: work given to a capturing stream becomes nodes of a graph.
 *
 * A capture is one chain of nodes, whatever streams join it. Calls that are unsafe while somebody captures are refused and spoil
 * the capture, as far as its mode and the calling thread's mode say so. */
#include "graph.h"

#include <stdlib.h>

#define CAPTURES 64
enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED_MODE = 2 };
enum { NONE = 0, ACTIVE = 1, INVALID = 2 };

static struct { pthread_mutex_t mutex; struct capture *active[CAPTURES]; uint64_t ids; } captures = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static _Atomic int capture_count;
static _Thread_local int own_mode = GLOBAL;

bool capture_active(struct stream *s)
{
    return __builtin_expect(atomic_load_explicit(&s->capture, memory_order_relaxed) != NONE, 0);
}

static void spoil_streams(void *object, void *arg)
{
    struct stream *s = object;
    if (s->capturing == arg)
        atomic_store(&s->capture, INVALID);
}

/* Does this capture forbid unsafe calls of the calling thread? */
static bool forbids(const struct capture *c)
{
    bool own = pthread_equal(c->thread, pthread_self());
    if (own_mode == RELAXED_MODE || c->mode == RELAXED_MODE)
        return false;
    return own || (own_mode == GLOBAL && c->mode == GLOBAL);
}

CUresult capture_forbids(void)
{
    if (__builtin_expect(atomic_load_explicit(&capture_count, memory_order_relaxed) == 0, 1))
        return CUDA_SUCCESS;
    CUresult rc = CUDA_SUCCESS;
    pthread_mutex_lock(&captures.mutex);
    for (int i = 0; i < CAPTURES; i++) {
        if (!captures.active[i] || !forbids(captures.active[i]))
            continue;
        handle_each(K_STREAM, spoil_streams, captures.active[i]);
        rc = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&captures.mutex);
    return rc;
}

/* ---- nodes ---- */

CUresult capture_node(struct stream *s, const struct node *like)
{
    if (atomic_load(&s->capture) == INVALID)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    struct capture *c = s->capturing;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    pthread_mutex_lock(&captures.mutex);
    CUresult rc = graph_add(&c->last, c->graph, c->last ? &c->last : NULL, c->last ? 1 : 0, like);
    pthread_mutex_unlock(&captures.mutex);
    return rc;
}

CUresult capture_kernel(struct stream *s, const CUDA_KERNEL_NODE_PARAMS *params)
{
    struct node like = {0};
    struct context *context = context_of(s->context);
    CUresult rc = context ? node_set_kernel(&like, params, context->card) : CUDA_ERROR_INVALID_HANDLE;
    if (rc == CUDA_SUCCESS && s->green)
        like.ns = green_time(s, like.ns, (uint64_t)params->gridDimX * params->gridDimY * params->gridDimZ);
    return rc ? rc : capture_node(s, &like);
}

CUresult capture_join(struct stream *s, CUevent event)
{
    struct event *e = handle_get(K_EVENT, event);
    struct capture *c = e->captured ? e->capture : NULL;
    if (!e->captured) /* a wait for something outside the graph */
        return capture_active(s) ? capture_node(s, &(struct node){.type = N_WAIT, .event = event}) : CUDA_SUCCESS;
    if (capture_active(s))
        return s->capturing == c ? CUDA_SUCCESS : 902; /* two captures cannot merge */
    s->capturing = c;
    atomic_store(&s->capture, ACTIVE);
    return CUDA_SUCCESS;
}

/* ---- the calls ---- */

static CUresult begin(CUstream stream, CUgraph into, CUgraphNode after, int mode)
{
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    struct stream *s = stream_of(stream, context);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (mode < GLOBAL || mode > RELAXED_MODE)
        return CUDA_ERROR_INVALID_VALUE;
    if (s == context->legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (capture_active(s))
        return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *c = calloc(1, sizeof *c);
    bool made = !into;
    if (!c || (made && !graph_new(&into))) {
        free(c);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult rc = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&captures.mutex);
    for (int i = 0; i < CAPTURES && rc; i++) {
        if (captures.active[i])
            continue;
        *c = (struct capture){.graph = into, .made = made, .last = after, .origin = s, .mode = mode, .id = ++captures.ids, .thread = pthread_self()};
        captures.active[i] = c;
        atomic_fetch_add(&capture_count, 1);
        rc = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&captures.mutex);
    if (rc) {
        if (made)
            graph_end(into);
        free(c);
        return rc;
    }
    s->capturing = c;
    atomic_store(&s->capture, ACTIVE);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream)
{
    ENTER(cuStreamBeginCapture);
    return begin(stream, NULL, NULL, GLOBAL);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    ENTER(cuStreamBeginCapture_v2);
    return begin(stream, NULL, NULL, mode);
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const void *data, size_t count,
                                            int mode)
{
    ENTER(cuStreamBeginCaptureToGraph);
    (void)data;
    if (!handle_get(K_GRAPH, graph) || (count && !after))
        return CUDA_ERROR_INVALID_VALUE;
    return begin(stream, graph, count ? after[count - 1] : NULL, mode);
}

static void release_streams(void *object, void *arg)
{
    struct stream *s = object;
    if (s->capturing == arg) {
        s->capturing = NULL;
        atomic_store(&s->capture, NONE);
    }
}

static void release_events(void *object, void *arg)
{
    struct event *e = object;
    if (e->capture == arg)
        e->capture = NULL;
}

EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *out)
{
    ENTER_CONTEXT(cuStreamEndCapture, context);
    struct stream *s = stream_of(stream, context);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    struct capture *c = s->capturing;
    if (!c)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    if (c->origin != s)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (c->mode != RELAXED_MODE && !pthread_equal(c->thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    bool spoiled = atomic_load(&s->capture) == INVALID;
    pthread_mutex_lock(&captures.mutex);
    for (int i = 0; i < CAPTURES; i++)
        if (captures.active[i] == c)
            captures.active[i] = NULL;
    atomic_fetch_sub(&capture_count, 1);
    pthread_mutex_unlock(&captures.mutex);
    handle_each(K_STREAM, release_streams, c);
    handle_each(K_EVENT, release_events, c);
    *out = spoiled ? NULL : c->graph;
    if (spoiled && c->made)
        graph_end(c->graph);
    free(c);
    return spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

EXPORT CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
    ENTER_CONTEXT(cuStreamIsCapturing, context);
    struct stream *s = stream_of(stream, context);
    if (!s || !status)
        return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *status = atomic_load(&s->capture);
    return CUDA_SUCCESS;
}

static CUresult info(CUstream stream, int *status, unsigned long long *id, CUgraph *graph, const CUgraphNode **after, size_t *count)
{
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    struct stream *s = stream_of(stream, context);
    if (!s || !status)
        return s ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
    *status = atomic_load(&s->capture);
    struct capture *c = *status == ACTIVE ? s->capturing : NULL;
    if (id && c)
        *id = c->id;
    if (graph && c)
        *graph = c->graph;
    if (after && c)
        *after = &c->last;
    if (count && c)
        *count = c->last ? 1 : 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCaptureInfo(CUstream stream, int *status, unsigned long long *id)
{
    ENTER(cuStreamGetCaptureInfo);
    return info(stream, status, id, NULL, NULL, NULL);
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
                                          const CUgraphNode **after, size_t *count)
{
    ENTER(cuStreamGetCaptureInfo_v2);
    return info(stream, status, id, graph, after, count);
}

EXPORT CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, unsigned long long *id, CUgraph *graph,
                                          const CUgraphNode **after, const void **data, size_t *count)
{
    static const char plain[8]; /* what the one edge to the next node carries */
    ENTER(cuStreamGetCaptureInfo_v3);
    if (data)
        *data = plain;
    return info(stream, status, id, graph, after, count);
}

static CUresult depend(CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags)
{
    struct context *context = context_current();
    CUresult usable = context_usable(context);
    if (usable)
        return usable;
    struct stream *s = stream_of(stream, context);
    if (!s || !s->capturing)
        return s ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1 || (count && !nodes))
        return CUDA_ERROR_INVALID_VALUE;
    if (count)
        s->capturing->last = nodes[count - 1];
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes, size_t count, unsigned int flags)
{
    ENTER(cuStreamUpdateCaptureDependencies);
    return depend(stream, nodes, count, flags);
}

EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode *nodes, const void *data, size_t count, unsigned int flags)
{
    ENTER(cuStreamUpdateCaptureDependencies_v2);
    (void)data;
    return depend(stream, nodes, count, flags);
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER(cuThreadExchangeStreamCaptureMode);
    if (!mode || *mode < GLOBAL || *mode > RELAXED_MODE)
        return CUDA_ERROR_INVALID_VALUE;
    int before = own_mode;
    own_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
