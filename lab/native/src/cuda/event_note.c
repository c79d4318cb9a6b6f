/* Events of several processes: what was recorded last, by whichever of them, stands in a note that each of them maps.
 *
 * Notes lie in a memory file of the exporter's that holds nothing else, and a place serves one event after another: whoever still maps
 * the note of an event that its exporter has ended writes over no memory of his, and waits for nobody. */
#define _GNU_SOURCE
#include "event_note.h"

#include "objects.h"
#include "old_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct event_note {
    struct machine_lock lock;
    uint64_t id; /* of the event; 0: its exporter has ended it */
    struct event_moment last;
    char rest[32];
};
enum { NOTES = 32768, PAGE = 4096 };
_Static_assert(PAGE % sizeof(struct event_note) == 0, "a note lies in one page");

static struct {
    pthread_mutex_t mutex;
    int fd;
    struct event_note *notes;
    uint32_t used, free_count, free[NOTES];
    uint64_t ids;
} ours = {.mutex = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

struct shared { /* in a CUipcEventHandle */
    char magic[16];
    uint64_t start_ticks, id;
    uint32_t pid, place;
    int32_t file;
    uint32_t card;
};
_Static_assert(sizeof(struct shared) <= sizeof(CUipcEventHandle), "it must fit the handle");
static const char MAGIC[16] = "pumice-event";

static bool open_file(void)
{
    if (ours.notes)
        return true;
    size_t bytes = NOTES * sizeof *ours.notes;
    int fd = memory_file("pumice-events", MFD_CLOEXEC);
    void *data = fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    ours.fd = fd;
    ours.notes = data;
    return true;
}

static struct event_note *take(void)
{
    if (!open_file() || (!ours.free_count && ours.used == NOTES))
        return NULL;
    bool again = ours.free_count;
    struct event_note *note = &ours.notes[again ? ours.free[--ours.free_count] : ours.used++];
    if (!again)
        lock_make(&note->lock);
    note->id = ++ours.ids;
    return note;
}

static bool is_ours(const struct event_note *note)
{
    return ours.notes && note >= ours.notes && note < ours.notes + NOTES;
}

/* A writer that was killed inside may have left half a moment: then it is as if nobody had recorded. */
static void hold(struct event_note *note)
{
    if (lock_take(&note->lock))
        note->last.generation = 0;
}

static uint64_t own_generation(void)
{
    return the_machine->processes[cu.slot].generation;
}

void event_note_write(const struct event *e)
{
    hold(e->note);
    if (e->note->id == e->note_id)
        e->note->last = (struct event_moment){own_generation(), e->position, (uint32_t)cu.slot, e->card};
    lock_give(&e->note->lock);
}

bool event_note_read(const struct event *e, struct event_moment *out)
{
    hold(e->note);
    *out = e->note->id == e->note_id ? e->note->last : (struct event_moment){0};
    lock_give(&e->note->lock);
    return out->generation && out->generation != own_generation() && out->slot < MACHINE_PROCESSES && out->card < the_machine->cards;
}

void event_note_end(struct event_note *note)
{
    if (!is_ours(note)) {
        munmap((void *)((uintptr_t)note & ~(uintptr_t)(PAGE - 1)), PAGE);
        return;
    }
    hold(note);
    note->id = note->last.generation = 0;
    lock_give(&note->lock);
    pthread_mutex_lock(&ours.mutex);
    ours.free[ours.free_count++] = (uint32_t)(note - ours.notes);
    pthread_mutex_unlock(&ours.mutex);
}

EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
    ENTER(cuIpcGetEventHandle);
    struct event *e = handle_get(K_EVENT, event);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!out || !(e->flags & CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    if (!card_at(e->card)->ipc_capable)
        return CUDA_ERROR_NOT_SUPPORTED;
    pthread_mutex_lock(&ours.mutex);
    if (!e->note && (e->note = take())) {
        e->note_id = e->note->id;
        if (e->recorded)
            event_note_write(e);
    }
    struct event_note *note = e->note;
    pthread_mutex_unlock(&ours.mutex);
    if (!note)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!is_ours(note))
        return CUDA_ERROR_INVALID_VALUE; /* another process's */
    struct identity self = identity_self();
    struct shared s = {.start_ticks = self.start_ticks, .id = e->note_id, .pid = self.pid, .place = (uint32_t)(note - ours.notes),
                       .file = ours.fd, .card = e->card};
    memcpy(s.magic, MAGIC, sizeof MAGIC);
    memset(out, 0, sizeof *out);
    memcpy(out, &s, sizeof s);
    return CUDA_SUCCESS;
}

static struct event_note *map_note(const struct shared *s)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/fd/%d", s->pid, s->file);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    size_t at = s->place * sizeof(struct event_note), page = at & ~(size_t)(PAGE - 1);
    char *data = fd < 0 ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page);
    if (fd >= 0)
        close(fd);
    return data == MAP_FAILED ? NULL : (struct event_note *)(void *)(data + (at - page));
}

EXPORT CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
    ENTER_CONTEXT(cuIpcOpenEventHandle, context);
    struct shared s;
    memcpy(&s, &handle, sizeof s);
    if (!out || memcmp(s.magic, MAGIC, sizeof MAGIC) != 0 || s.place >= NOTES || s.card >= the_machine->cards)
        return CUDA_ERROR_INVALID_VALUE;
    if (s.pid == identity_self().pid)
        return CUDA_ERROR_INVALID_CONTEXT; /* the exporter itself cannot open it */
    struct event_note *note = identity_alive(s.pid, s.start_ticks, identity_self().pid_namespace) ? map_note(&s) : NULL;
    if (!note)
        return CUDA_ERROR_MAP_FAILED;
    struct event *e = note->id == s.id ? handle_new(K_EVENT) : NULL;
    if (!e) {
        CUresult rc = note->id == s.id ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_MAP_FAILED;
        event_note_end(note);
        return rc;
    }
    e->context = context_current_handle();
    e->card = context->card;
    e->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
    e->note = note;
    e->note_id = s.id;
    *out = handle_of(K_EVENT, e);
    return CUDA_SUCCESS;
}
