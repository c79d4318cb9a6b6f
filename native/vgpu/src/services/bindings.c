#include "services/bindings.h"

#include "core/after_fork.h"
#include "book/records.h"
#include "core/quiet.h"
#include "core/log.h"
#include "core/waits.h"
#include "services/process_state.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct binding {
    struct binding *next;
    CUmemHandle multicast, memory;
    CUdevice device;
    size_t at;
};

static struct binding *bindings;
static pthread_mutex_t bindings_mutex = PTHREAD_MUTEX_INITIALIZER;
FORGET_IN_CHILD(bindings);
FORGET_IN_CHILD(bindings_mutex);

void bindings_made(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle memory)
{
    KEEP_ERRNO;
    struct record ended;
    struct binding *binding = malloc(sizeof *binding);
    records_count(RECORD_HANDLE, memory, 0, 1, &ended);
    if (binding == NULL) {
        log_error("no memory for what is bound to a multicast object: it stays booked until the process ends");
    } else {
        mutex_take(&bindings_mutex);
        *binding = (struct binding){bindings, multicast, memory, device, at};
        bindings = binding;
        pthread_mutex_unlock(&bindings_mutex);
    }
}

/* device -1: whatever is bound. False: nothing is. */
static bool take(CUmemHandle multicast, CUdevice device, size_t at, CUmemHandle *memory)
{
    mutex_take(&bindings_mutex);
    struct binding **place = &bindings, *found;
    while ((found = *place) != NULL && (found->multicast != multicast || (device >= 0 && (found->device != device || found->at != at))))
        place = &found->next;
    if (found != NULL) {
        *place = found->next;
        *memory = found->memory;
    }
    pthread_mutex_unlock(&bindings_mutex);
    free(found);
    return found != NULL;
}

static bool undo(CUmemHandle multicast, CUdevice device, size_t at)
{
    CUmemHandle memory;
    struct record ended;
    if (!take(multicast, device, at, &memory))
        return false;
    if (records_count(RECORD_HANDLE, memory, 0, -1, &ended))
        process_gone(&ended);
    return true;
}

void bindings_undone(CUmemHandle multicast, CUdevice device, size_t at)
{
    undo(multicast, device, at);
}

void bindings_ended(CUmemHandle multicast)
{
    while (undo(multicast, -1, 0))
        ;
}
