/* Streams, and the host functions that run in them.
 *
 * A stream is the position of its last work on the axis of its card; waiting for it is waiting for that position. Host functions
 * run on one thread of the library, in order, each when its stream is there. Work given after a host function does not wait for
 * it (kernels touch no data here); copies and synchronisation do. */
#define _GNU_SOURCE
#include "graph.h"

#include <signal.h>
#include <stdlib.h>

static void stream_init(struct stream *s, CUcontext context, unsigned flags, int priority)
{
    static _Atomic uint64_t ids;
    s->context = context;
    s->flags = flags;
    s->priority = priority;
    struct context *of = handle_get(K_CONTEXT, context);
    s->green = of && of->green;
    s->id = atomic_fetch_add(&ids, 1) + 1;
}

/* ---- which stream ---- */

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

#define OWN_STREAMS 16
struct own_streams { CUcontext context[OWN_STREAMS]; CUstream stream[OWN_STREAMS]; unsigned count; };

static void own_end(void *arg)
{
    struct own_streams *own = arg;
    for (unsigned i = 0; i < own->count; i++)
        handle_drop(K_STREAM, own->stream[i]);
    free(own);
}

static void own_key_make(void)
{
    pthread_key_create(&own_key, own_end);
}

/* The calling thread's default stream in this context. */
static struct stream *per_thread_stream(CUcontext context)
{
    pthread_once(&own_once, own_key_make);
    struct own_streams *own = pthread_getspecific(own_key);
    if (!own) {
        own = calloc(1, sizeof *own);
        if (!own || pthread_setspecific(own_key, own) != 0)
            return NULL;
    }
    unsigned place = own->count;
    for (unsigned i = 0; i < own->count; i++) {
        struct stream *s = handle_get(K_STREAM, own->stream[i]);
        if (own->context[i] == context && s)
            return s;
        if (!handle_get(K_CONTEXT, own->context[i]))
            place = i;
    }
    struct stream *s = place < OWN_STREAMS ? handle_new(K_STREAM) : NULL;
    if (s) {
        stream_init(s, context, 0, 0);
        own->context[place] = context;
        own->stream[place] = handle_of(K_STREAM, s);
        if (place == own->count)
            own->count++;
    }
    return s;
}

struct stream *stream_of(CUstream handle, struct context *context)
{
    if ((uint64_t)handle <= (uint64_t)CU_STREAM_PER_THREAD) {
        struct context *chosen = context_chosen();
        if (chosen && chosen->green && handle_get(K_CONTEXT, chosen->parent) == context)
            context = chosen;
        return handle == CU_STREAM_PER_THREAD ? per_thread_stream(handle_of(K_CONTEXT, context)) : context->legacy;
    }
    struct stream *s = handle_get(K_STREAM, handle);
    return s && __builtin_expect(s->green, 0) && !handle_get(K_CONTEXT, s->context) ? NULL : s;
}

CUresult stream_missing(CUstream handle)
{
    return handle_get(K_STREAM, handle) ? CUDA_ERROR_STREAM_DETACHED : CUDA_ERROR_INVALID_HANDLE;
}

static unsigned card_of(const struct stream *s)
{
    struct context *context = handle_get(K_CONTEXT, s->context);
    return context ? context->card : 0;
}

static bool is_legacy(const struct stream *s)
{
    struct context *context = handle_get(K_CONTEXT, s->context);
    return context && context->legacy == s;
}

/* ---- work and waiting ---- */

uint64_t stream_submit(struct stream *s, unsigned card, uint64_t ns)
{
    uint64_t after = atomic_load_explicit(&s->tail, memory_order_relaxed);
    if (RELAXED(&the_machine->overlap) && is_legacy(s)) {
        uint64_t all = RELAXED(&account_at(card, cu.slot)->submitted_ns);
        after = all > after ? all : after;
    }
    uint64_t end = __builtin_expect(s->green, 0) ? green_submit(s, card, ns, after) : timeline_submit(card, cu.slot, ns, after);
    if (ns)
        while (after < end && !atomic_compare_exchange_weak_explicit(&s->tail, &after, end, memory_order_relaxed,
                                                                     memory_order_relaxed))
            ;
    return end;
}

CUresult stream_drain_callbacks(struct stream *s)
{
    for (uint32_t left = atomic_load(&s->callbacks); left > 0; left = atomic_load(&s->callbacks))
        pumice_machine_wait((const uint32_t *)&s->callbacks, left, UINT64_MAX);
    return CUDA_SUCCESS;
}

CUresult stream_wait(struct stream *s)
{
    unsigned card = card_of(s);
    uint64_t position = is_legacy(s) ? RELAXED(&account_at(card, cu.slot)->submitted_ns)
                                     : atomic_load_explicit(&s->tail, memory_order_relaxed);
    if (!timeline_wait(card, cu.slot, position))
        return CUDA_ERROR_UNKNOWN;
    pools_settle();
    return stream_drain_callbacks(s);
}

static void drain_if_of(void *object, void *arg)
{
    struct stream *s = object;
    const struct context *of = handle_get(K_CONTEXT, s->context);
    if ((s->context == arg || (of && of->green && of->parent == arg)) && atomic_load(&s->callbacks))
        stream_drain_callbacks(s);
}

static _Atomic uint64_t callbacks_ever;

CUresult context_wait(struct context *context)
{
    uint64_t position = context->green ? green_end_of(context->green) : RELAXED(&account_at(context->card, cu.slot)->submitted_ns);
    if (!timeline_wait(context->card, cu.slot, position))
        return CUDA_ERROR_UNKNOWN;
    pools_settle();
    if (atomic_load_explicit(&callbacks_ever, memory_order_relaxed))
        handle_each(K_STREAM, drain_if_of, handle_of(K_CONTEXT, context));
    return CUDA_SUCCESS;
}

static void end_if_of(void *object, void *arg)
{
    struct stream *s = object;
    if (s->context == arg)
        handle_drop(K_STREAM, handle_of(K_STREAM, s));
}

void streams_of_context_end(CUcontext context)
{
    handle_each(K_STREAM, end_if_of, context);
}

static bool capture_ended(struct stream *s)
{
    int active = 1;
    return atomic_compare_exchange_strong(&s->capture, &active, 2);
}

static void detach_if_of(void *object, void *arg)
{
    struct stream *s = object;
    if (s->context == arg)
        capture_ended(s);
}

void streams_of_green_end(CUcontext context)
{
    handle_each(K_STREAM, detach_if_of, context);
}

struct wait_for { CUcontext context; uint64_t position; bool captured; };

static void wait_if_of(void *object, void *arg)
{
    struct stream *s = object;
    const struct wait_for *what = arg;
    uint64_t tail = atomic_load(&s->tail);
    while (s->context == what->context && tail < what->position && !atomic_compare_exchange_weak(&s->tail, &tail, what->position))
        ;
}

void streams_of_context_wait_for(CUcontext context, uint64_t position)
{
    struct wait_for what = {context, position, false};
    handle_each(K_STREAM, wait_if_of, &what);
}

static void look_if_of(void *object, void *arg)
{
    struct stream *s = object;
    struct wait_for *what = arg;
    if (s->context == what->context && capture_ended(s))
        what->captured = true;
}

bool streams_of_context_captured(CUcontext context)
{
    struct wait_for what = {context, 0, false};
    handle_each(K_STREAM, look_if_of, &what);
    return what.captured;
}

CUresult stream_make(CUstream *out, CUcontext context, unsigned flags, int priority)
{
    struct stream *s = handle_new(K_STREAM);
    if (!s)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream_init(s, context, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority);
    *out = handle_of(K_STREAM, s);
    return CUDA_SUCCESS;
}

/* ---- the calls ---- */

EXPORT CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
    ENTER_CONTEXT(cuStreamCreateWithPriority, context);
    (void)context;
    return out && flags <= 1 ? stream_make(out, context_on_top(), flags, priority) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
    ENTER(cuStreamCreate);
    return cuStreamCreateWithPriority(out, flags, 0);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER_CONTEXT(cuStreamDestroy_v2, context);
    struct stream *s = handle_get(K_STREAM, stream);
    if (!s || is_legacy(s))
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult rc = stream_drain_callbacks(s); /* its kernels go on; host functions hold the stream */
    handle_drop(K_STREAM, stream);
    return rc;
}

EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    return cuStreamDestroy_v2(stream);
}

#define WITH_STREAM(function, handle, s) \
    ENTER_CONTEXT(function, context); \
    struct stream *s = stream_of(handle, context); \
    if (!s) \
        return stream_missing(handle);

EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    WITH_STREAM(cuStreamSynchronize, stream, s);
    if (atomic_load(&s->capture)) {
        atomic_store(&s->capture, 2);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return stream_wait(s);
}

EXPORT CUresult cuStreamQuery(CUstream stream)
{
    WITH_STREAM(cuStreamQuery, stream, s);
    if (atomic_load(&s->capture)) {
        atomic_store(&s->capture, 2);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    uint64_t position = is_legacy(s) ? RELAXED(&account_at(context->card, cu.slot)->submitted_ns) : atomic_load(&s->tail);
    bool done = timeline_done(card_of(s), cu.slot, position) && atomic_load(&s->callbacks) == 0;
    return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    WITH_STREAM(cuStreamGetPriority, stream, s);
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = s->priority;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetFlags(CUstream stream, unsigned int *flags)
{
    WITH_STREAM(cuStreamGetFlags, stream, s);
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = s->flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetId(CUstream stream, unsigned long long *id)
{
    WITH_STREAM(cuStreamGetId, stream, s);
    if (!id)
        return CUDA_ERROR_INVALID_VALUE;
    *id = s->id;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    WITH_STREAM(cuStreamGetCtx, stream, s);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = s->context;
    return CUDA_SUCCESS;
}

/* Of a stream of a green context the second form tells that, and the primary context. */
EXPORT CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *out, CUgreenCtx *green)
{
    WITH_STREAM(cuStreamGetCtx_v2, stream, s);
    if (!out)
        return CUDA_ERROR_INVALID_VALUE;
    const struct context *of = handle_get(K_CONTEXT, s->context);
    *out = s->green && of ? of->parent : s->context;
    if (green)
        *green = of ? of->green : NULL;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *out)
{
    WITH_STREAM(cuStreamGetGreenCtx, stream, s);
    const struct context *of = handle_get(K_CONTEXT, s->context);
    if (!out || !of)
        return CUDA_ERROR_INVALID_VALUE;
    *out = of->green;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamGetDevice(CUstream stream, CUdevice *device)
{
    WITH_STREAM(cuStreamGetDevice, stream, s);
    struct context *of = handle_get(K_CONTEXT, s->context);
    if (!device || !of)
        return CUDA_ERROR_INVALID_VALUE;
    *device = of->device;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t length, unsigned int flags)
{
    WITH_STREAM(cuStreamAttachMemAsync, stream, s);
    struct block b;
    (void)length;
    return heap_find(address, &b) && block_managed(&b) && flags <= 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- host functions ---- */

struct callback {
    struct callback *next;
    struct stream *stream;
    CUstream handle;
    unsigned card;
    uint64_t position;
    CUhostFn function;
    CUstreamCallback with_status;
    void *data;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t some;
    struct callback *first, **last;
    bool running;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER, .last = &queue.first};

static void run_one(struct callback *c)
{
    bool reached = timeline_wait(c->card, cu.slot, c->position);
    if (c->function)
        c->function(c->data);
    else
        c->with_status(c->handle, reached ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN, c->data);
    atomic_fetch_sub(&c->stream->callbacks, 1);
    pumice_machine_wake();
    free(c);
}

static void *run_callbacks(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&queue.mutex);
        while (!queue.first)
            pthread_cond_wait(&queue.some, &queue.mutex);
        struct callback *c = queue.first;
        queue.first = c->next;
        if (!queue.first)
            queue.last = &queue.first;
        pthread_mutex_unlock(&queue.mutex);
        run_one(c);
    }
    return NULL;
}

static bool start_thread(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* the program's signals are not for this thread */
    pthread_t thread;
    bool started = pthread_create(&thread, NULL, run_callbacks, NULL) == 0;
    if (started)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static CUresult enqueue(struct stream *s, struct callback what)
{
    struct callback *c = malloc(sizeof *c);
    if (!c)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *c = what;
    c->next = NULL;
    c->stream = s;
    c->card = card_of(s);
    c->position = is_legacy(s) ? RELAXED(&account_at(c->card, cu.slot)->submitted_ns) : atomic_load(&s->tail);
    pthread_mutex_lock(&queue.mutex);
    if (!queue.running)
        queue.running = start_thread();
    bool running = queue.running;
    if (running) {
        atomic_fetch_add(&s->callbacks, 1);
        atomic_fetch_add(&callbacks_ever, 1);
        *queue.last = c;
        queue.last = &c->next;
        pthread_cond_signal(&queue.some);
    }
    pthread_mutex_unlock(&queue.mutex);
    if (!running)
        free(c);
    return running ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

static CUresult host_function(CUstream stream, struct stream *s, CUhostFn function, void *data)
{
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_active(s))
        return capture_node(s, &(struct node){.type = N_HOST, .host = {function, data}});
    return enqueue(s, (struct callback){.handle = stream, .function = function, .data = data});
}

EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    WITH_STREAM(cuLaunchHostFunc, stream, s);
    return host_function(stream, s, function, data);
}

/* The machine's thread for host functions always blocks; the driver may spin instead, which nobody sees from outside. */
EXPORT CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int sync_mode)
{
    WITH_STREAM(cuLaunchHostFunc_v2, stream, s);
    return sync_mode > 1 ? CUDA_ERROR_INVALID_VALUE : host_function(stream, s, function, data);
}

EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    WITH_STREAM(cuStreamAddCallback, stream, s);
    if (!callback || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_active(s))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return enqueue(s, (struct callback){.handle = stream, .with_status = callback, .data = data});
}

CUresult stream_enqueue_host(struct stream *s, CUhostFn function, void *data)
{
    return enqueue(s, (struct callback){.function = function, .data = data});
}
