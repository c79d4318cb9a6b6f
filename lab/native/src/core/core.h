/* Shared by both libraries: attaching to the machine, its locks, processes, memory, time. Hidden in both. */
#ifndef PUMICE_MACHINE_CORE_H
#define PUMICE_MACHINE_CORE_H

#include <machine/machine.h>
#include <machine/state.h>

#include <stdatomic.h>
#include <stdbool.h>

#define EXPORT __attribute__((visibility("default")))

/* Shared words are plain in the layout, so that Python can mirror it; C reads and writes them through these. */
#define LOAD(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)
#define RELAXED(p) __atomic_load_n(p, __ATOMIC_RELAXED)
#define SET(p, v) __atomic_store_n(p, v, __ATOMIC_RELAXED)
#define ADD(p, v) __atomic_fetch_add(p, v, __ATOMIC_RELAXED)

#define MIB (1ull << 20)
#define BLOCK (2 * MIB) /* the driver hands out physical memory in blocks of this size */

/* ---- attach.c ---- */
extern struct machine_state *the_machine; /* NULL before a successful attach; never unmapped */
bool machine_attach(void);
bool machine_attach_again(void); /* follows PUMICE_MACHINE to another machine: nvmlInit after the last nvmlShutdown */
struct machine_state *machine_map(const char *dir); /* a private mapping for control; unmap with machine_unmap */
void machine_unmap(struct machine_state *m);

/* ---- lock.c ---- */
void lock_make(struct machine_lock *lock);
bool lock_take(struct machine_lock *lock); /* true: the previous holder died inside; repair before going on */
void lock_give(struct machine_lock *lock);
void card_lock(unsigned card);             /* repairs the card's books if need be */
void card_unlock(unsigned card);

/* ---- process.c ---- */
struct identity {
    uint32_t pid;
    uint64_t start_ticks;
    uint64_t pid_namespace;
};
struct identity identity_self(void);
bool identity_alive(uint32_t pid, uint64_t start_ticks, uint64_t pid_namespace);
int process_claim(void);         /* a slot for this process, or -1: full */
void process_leave(int slot);    /* at exit */
int process_reap(bool now);      /* takes out dead processes; unless `now`, at most every 10 ms. How many */
static inline bool process_live(const struct machine_process *p) { return LOAD(&p->state) == 2; }

/* ---- memory.c ---- */
struct charge {
    uint64_t bytes;     /* physical */
    uint64_t requested;
    uint32_t allocations;
    uint32_t contexts;
    uint64_t context_bytes;
};
bool memory_charge(unsigned card, int slot, struct charge c); /* false: does not fit */
void memory_release(unsigned card, int slot, struct charge c);
void memory_charge_managed(unsigned card, int slot, struct charge c); /* what does not fit lies on the host */
void memory_release_managed(unsigned card, int slot, struct charge c);
uint64_t memory_capacity(unsigned card, unsigned lane); /* what programs can have; card lock held or not */
uint64_t memory_used(unsigned card, unsigned lane);     /* by known processes */
uint64_t memory_allowed(unsigned card, int slot);       /* what its MPS server still lets the process take; UINT64_MAX: no bound */

/* ---- share.c: memory that several processes hold; shares are numbered from 1 ---- */
uint32_t share_new(unsigned card, int slot, uint64_t bytes, uint64_t *id); /* of what the slot pays for; 0: no room */
bool share_join(uint32_t share, uint64_t id, int slot);                    /* false: nobody holds it any more */
bool share_leave(uint32_t share, int slot); /* false: it was the last, and gives the bytes back itself */
void shares_end_of(unsigned slot);          /* machine lock held */

/* ---- links.c ---- */
bool card_on_switch(unsigned card);
bool cards_linked(unsigned one, unsigned other);
bool cards_peers(unsigned one, unsigned other); /* either can reach the other's memory */

/* ---- visible.c: the cards that this process is shown, numbered as it sees them ---- */
void visible_look(const struct machine_state *m); /* at attach */
unsigned visible_count(void);
unsigned visible_card(unsigned index);
int visible_index(unsigned card); /* -1: hidden */
bool visible_instance(const struct machine_state *m, unsigned card, const char *uuid); /* of a card that is seen */

/* ---- clock.c ---- */
uint64_t machine_now(void);
void machine_sleep_until(uint64_t deadline);
uint64_t real_now(void);
void clock_leave(void); /* at exit: the process's threads no longer take part */
bool machine_joined(void); /* the calling thread takes part in virtual time */

/* ---- timeline.c; card lock held where it says (held) ---- */
void lane_advance(unsigned card, unsigned lane, uint64_t now);                          /* (held) */
uint64_t lane_predict(unsigned card, int slot, uint64_t position);                      /* (held) when it will be served, or earlier */
uint64_t timeline_submit(unsigned card, int slot, uint64_t ns, uint64_t after);         /* position of its end */
uint64_t timeline_submit_beside(unsigned card, int slot, uint64_t ns, uint64_t after);  /* whatever else was given runs at the same time */
void timeline_wait_for_room(unsigned card, int slot, uint64_t end);                     /* of work that was given beside others */
bool timeline_done(unsigned card, int slot, uint64_t position);
bool timeline_wait(unsigned card, int slot, uint64_t position);                         /* false: the card was lost */
bool timeline_done_elsewhere(unsigned card, int slot, uint64_t generation, uint64_t position); /* of another process, if only by its end */
bool timeline_wait_elsewhere(unsigned card, int slot, uint64_t generation, uint64_t position); /* false: the card was lost */
bool timeline_mark(unsigned card, int slot, uint64_t position, uint32_t *mark, uint64_t *time); /* false: ring full */
uint64_t timeline_mark_time(unsigned card, int slot, uint32_t mark, uint64_t position); /* 0: not yet */
void timeline_reset(void); /* forget what this process cached: after fork and at attach */
uint64_t busy_window(const uint64_t *buckets, uint64_t epoch, uint64_t now, uint64_t window);
void busy_add(uint64_t *buckets, uint64_t *epoch, uint64_t from, uint64_t ns);

/* ---- fault.c ---- */
/* The code to answer instead of doing anything, or 0. Sleeps the fault's delay. */
int fault_hit(const char *function);
static inline int fault_check(const char *function)
{
    return __builtin_expect(the_machine && RELAXED(&the_machine->fault_count) != 0, 0) ? fault_hit(function) : 0;
}

/* ---- shared helpers ---- */
static inline struct machine_card *card_at(unsigned card) { return &the_machine->card[card]; }
static inline struct machine_account *account_at(unsigned card, int slot)
{
    return &the_machine->processes[slot].accounts[card];
}
static inline bool card_lost(unsigned card) { return LOAD(&the_machine->card[card].lost) != 0; }

#endif
