/* The note by which processes share an event. */
#ifndef PUMICE_MACHINE_EVENT_NOTE_H
#define PUMICE_MACHINE_EVENT_NOTE_H

#include "cuda.h"

struct event_note;
struct event_moment {
    uint64_t generation, position; /* of the process whose work it is; 0: never recorded */
    uint32_t slot, card;
};
struct event;
void event_note_write(const struct event *e);                           /* recorded by this process */
bool event_note_read(const struct event *e, struct event_moment *out);  /* true: another process recorded it last */
void event_note_end(struct event_note *note);

#endif
