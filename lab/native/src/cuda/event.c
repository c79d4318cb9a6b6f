/* Events: a position on a card's axis and, unless timing is off, the moment it was reached.
 *
 * The moment is taken by whoever brings the lane past the position, into a mark in shared memory; marks are a ring, so a finished
 * one is copied home (harvested) before its place is used again. A full ring makes the recorder wait, as a full queue does. */
#define _GNU_SOURCE
#include "event_note.h"
#include "graph.h"

static struct {
    pthread_mutex_t mutex;
    struct event *owner[MACHINE_MARKS];
} marks[MACHINE_CARDS] = {[0 ... MACHINE_CARDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER}};

/* card's marks mutex held */
static void harvest(struct event *e)
{
    if (!e->pending)
        return;
    uint64_t time = timeline_mark_time(e->card, cu.slot, e->mark, e->position);
    if (time == 0)
        return;
    e->time = time;
    e->pending = false;
    marks[e->card].owner[e->mark % MACHINE_MARKS] = NULL;
}

static void disown(struct event *e)
{
    if (e->pending && marks[e->card].owner[e->mark % MACHINE_MARKS] == e)
        marks[e->card].owner[e->mark % MACHINE_MARKS] = NULL;
    e->pending = false;
}

enum { RECORD_EXTERNAL = 1 };

static uint64_t oldest_pending(unsigned card)
{
    const struct machine_account *a = account_at(card, cu.slot);
    return the_machine->marks[cu.slot][card][RELAXED(&a->mark_tail) % MACHINE_MARKS].position_ns;
}

/* marks mutex held; false: the ring is full */
static bool place_mark(struct event *e, unsigned card)
{
    struct event *before = marks[card].owner[RELAXED(&account_at(card, cu.slot)->mark_head) % MACHINE_MARKS];
    if (before)
        harvest(before);
    uint64_t time;
    uint32_t mark = 0;
    if (!timeline_mark(card, cu.slot, e->position, &mark, &time))
        return false;
    e->time = time;
    e->mark = mark;
    e->pending = time == 0;
    if (e->pending)
        marks[card].owner[mark % MACHINE_MARKS] = e;
    return true;
}

static CUresult record_at(struct event *e, unsigned card, uint64_t position)
{
    pthread_mutex_lock(&marks[e->card].mutex);
    disown(e);
    pthread_mutex_unlock(&marks[e->card].mutex);
    pthread_mutex_lock(&marks[card].mutex);
    e->card = card;
    e->recorded = true;
    e->captured = false;
    e->time = 0;
    e->position = position;
    while (!(e->flags & CU_EVENT_DISABLE_TIMING) && !place_mark(e, card)) {
        uint64_t oldest = oldest_pending(card);
        pthread_mutex_unlock(&marks[card].mutex);
        bool reached = timeline_wait(card, cu.slot, oldest);
        pthread_mutex_lock(&marks[card].mutex);
        if (!reached)
            break;
    }
    pthread_mutex_unlock(&marks[card].mutex);
    if (e->note)
        event_note_write(e);
    return CUDA_SUCCESS;
}

static CUresult record(struct event *e, struct stream *s, struct context *context)
{
    bool all = s == context->legacy;
    return record_at(e, context->card, all ? RELAXED(&account_at(context->card, cu.slot)->submitted_ns) : atomic_load(&s->tail));
}

CUresult event_record_in(CUevent event, struct stream *s, struct context *context)
{
    struct event *e = handle_get(K_EVENT, event);
    return e ? record(e, s, context) : CUDA_ERROR_INVALID_HANDLE;
}

static bool recorded_elsewhere(struct event *e, struct event_moment *moment)
{
    return e->note && event_note_read(e, moment);
}

static CUresult wait_elsewhere(const struct event_moment *m)
{
    return timeline_wait_elsewhere(m->card, (int)m->slot, m->generation, m->position) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static bool complete(struct event *e)
{
    struct event_moment moment;
    if (recorded_elsewhere(e, &moment))
        return timeline_done_elsewhere(moment.card, (int)moment.slot, moment.generation, moment.position);
    pthread_mutex_lock(&marks[e->card].mutex);
    harvest(e);
    bool known = e->time != 0, pending = e->pending, recorded = e->recorded;
    uint64_t position = e->position;
    pthread_mutex_unlock(&marks[e->card].mutex);
    if (!recorded || known)
        return true;
    return !pending && timeline_done(e->card, cu.slot, position);
}

EXPORT CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
    ENTER_CONTEXT(cuEventCreate, context);
    if (!out || flags > 7 || (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct event *e = handle_new(K_EVENT);
    if (!e)
        return CUDA_ERROR_OUT_OF_MEMORY;
    e->context = context_current_handle();
    e->card = context->card;
    e->flags = flags;
    *out = handle_of(K_EVENT, e);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER(cuEventDestroy_v2);
    struct event *e = handle_get(K_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    pthread_mutex_lock(&marks[e->card].mutex);
    disown(e);
    pthread_mutex_unlock(&marks[e->card].mutex);
    if (e->note)
        event_note_end(e->note);
    handle_drop(K_EVENT, event);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventDestroy(CUevent event)
{
    return cuEventDestroy_v2(event);
}

EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
    ENTER_CONTEXT(cuEventRecordWithFlags, context);
    struct event *e = handle_get(K_EVENT, event);
    struct stream *s = stream_of(stream, context);
    if (!e || !s)
        return e ? stream_missing(stream) : CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    struct context *of = s == context->legacy ? context : context_of(s->context);
    if (!of)
        return CUDA_ERROR_INVALID_HANDLE;
    if (capture_active(s) && flags == RECORD_EXTERNAL)
        return capture_node(s, &(struct node){.type = N_RECORD, .event = event});
    if (capture_active(s)) { /* what later work of the capture depends on: no node, and the event may be gone when the graph runs */
        e->captured = true;
        e->capture = s->capturing;
        return CUDA_SUCCESS;
    }
    return record(e, s, of);
}

EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(cuEventRecord);
    return cuEventRecordWithFlags(event, stream, 0);
}

EXPORT CUresult cuEventQuery(CUevent event)
{
    ENTER(cuEventQuery);
    struct event *e = handle_get(K_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    CUresult forbidden = capture_forbids();
    if (forbidden)
        return forbidden;
    if (card_lost(e->card))
        return CUDA_ERROR_UNKNOWN;
    return complete(e) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

EXPORT CUresult cuEventSynchronize(CUevent event)
{
    ENTER(cuEventSynchronize);
    struct event *e = handle_get(K_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->captured)
        return CUDA_ERROR_CAPTURED_EVENT;
    struct event_moment moment;
    if (recorded_elsewhere(e, &moment))
        return wait_elsewhere(&moment);
    if (e->recorded && !timeline_wait(e->card, cu.slot, e->position))
        return CUDA_ERROR_UNKNOWN;
    complete(e);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(cuEventElapsedTime);
    struct event *a = handle_get(K_EVENT, start), *b = handle_get(K_EVENT, end);
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!a || !b || !a->recorded || !b->recorded || a->flags & CU_EVENT_DISABLE_TIMING || b->flags & CU_EVENT_DISABLE_TIMING)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!complete(a) || !complete(b))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)(((double)b->time - (double)a->time) / 1e6);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(cuEventElapsedTime_v2);
    return cuEventElapsedTime(milliseconds, start, end);
}

/* On one card the order of the axis does it; what another card or another process recorded is waited for here. */
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    ENTER_CONTEXT(cuStreamWaitEvent, context);
    struct stream *s = stream_of(stream, context);
    struct event *e = handle_get(K_EVENT, event);
    if (!s || !e)
        return e ? stream_missing(stream) : CUDA_ERROR_INVALID_HANDLE;
    if (flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (capture_active(s) || e->captured)
        return capture_join(s, event);
    struct event_moment moment;
    if (recorded_elsewhere(e, &moment))
        return wait_elsewhere(&moment);
    struct context *of = context_of(s->context);
    if (!e->recorded || !of)
        return CUDA_SUCCESS;
    if (of->card != e->card)
        return timeline_wait(e->card, cu.slot, e->position) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    uint64_t tail = atomic_load(&s->tail);
    while (tail < e->position && !atomic_compare_exchange_weak(&s->tail, &tail, e->position))
        ;
    return CUDA_SUCCESS;
}

/* ---- of a whole context ---- */

static CUresult whole_context(CUcontext handle, CUevent event, struct context **context, struct event **e)
{
    *context = handle ? context_of(handle) : context_chosen();
    *e = handle_get(K_EVENT, event);
    if (!*context)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!*e)
        return CUDA_ERROR_INVALID_HANDLE;
    return streams_of_context_captured(handle_of(K_CONTEXT, *context)) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

CUresult event_record_context(CUcontext handle, CUevent event)
{
    struct context *context;
    struct event *e;
    CUresult rc = whole_context(handle, event, &context, &e);
    if (rc == CUDA_SUCCESS && context->card != e->card)
        rc = CUDA_ERROR_INVALID_HANDLE;
    uint64_t all = rc || context->green ? 0 : RELAXED(&account_at(context->card, cu.slot)->submitted_ns);
    return rc ? rc : record_at(e, context->card, context->green ? green_end_of(context->green) : all);
}

/* Work that is given to a whole card comes behind all that it was given. */
CUresult event_wait_context(CUcontext handle, CUevent event)
{
    struct context *context;
    struct event *e;
    struct event_moment moment;
    CUresult rc = whole_context(handle, event, &context, &e);
    if (rc)
        return rc;
    if (e->captured)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (recorded_elsewhere(e, &moment))
        return wait_elsewhere(&moment);
    if (!e->recorded)
        return CUDA_SUCCESS;
    if (context->card != e->card)
        return timeline_wait(e->card, cu.slot, e->position) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    streams_of_context_wait_for(handle_of(K_CONTEXT, context), e->position);
    green_wait_for(handle_of(K_CONTEXT, context), e->position);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxRecordEvent(CUcontext handle, CUevent event)
{
    ENTER(cuCtxRecordEvent);
    return event_record_context(handle, event);
}

EXPORT CUresult cuCtxWaitEvent(CUcontext handle, CUevent event)
{
    ENTER(cuCtxWaitEvent);
    return event_wait_context(handle, event);
}
