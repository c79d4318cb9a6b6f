/* The waits of a launch under a core limit. Every wait is bounded or looks again after 50 ms; no lock is held while sleeping. */
#ifndef VGPU_WAITING_H
#define VGPU_WAITING_H

#include "services/launching.h"
#include "policy/usage.h"

#define PROBE_NS 400000000ull      /* how long the right to launch something unknown holds */

uint64_t launch_limit_shared_evenly(uint64_t limit);

/* The limit that holds, shared evenly where the file of another library leaves no room for a common budget; 0 = none. */
static inline uint64_t launch_limit_of(int device)
{
    uint64_t limit = backend->share(&process_state.map, &process_state.config, device);
    if (limit == 0)
        return 0;
    return process_state.map.ext_shared || !process_state.map.shared ? usage_limit(&process_state.map, device, limit) : launch_limit_shared_evenly(limit);
}

/* A launch on a capturing stream becomes a node of a graph; it costs when the graph runs. */
bool launch_capturing(CUstream stream, bool per_thread);

uint64_t nap(uint64_t ns); /* how long it was meant to be: 50 ms at most */

/* The same while others may wait for what this process has launched: it looks at its answers and tells when it is done. */
uint64_t rest(int index, uint64_t now, uint64_t wait);

/* The right to launch what nobody knows; false: meanwhile it is known, or patience ended. */
bool await_probe(int index, struct cost *cost, bool one_stream);
void probe_launched(int index, uint64_t now, bool measured);
void probe_answered(int index);
void yield_to_probe(int index, int64_t estimate);
void await_neighbours(int index);

/* Until the process is not ahead of the container's others. False: it would have to wait and captures. */
bool await_fair(int index, const struct launch *launch);

/* Charges a launch to the container and to its process. */
struct ticket launch_charge(int index, int64_t cost);
void launch_correct(int index, int64_t difference);

/* Sleeps off the debt. first: the holder of the probe's right, which it keeps meanwhile. ahead: saved up beyond it. */
void await_turn(int index, struct ticket ticket, bool first, int64_t ahead);

/*
 * Returns the time that a launch saves up so that others of its kind follow it closely. Launched one by one beside somebody who
 * never rests, each waits for a slice first, and its own length is never seen; those behind another in one slice show it.
 */
int64_t burst_ahead(int index, const struct cost *cost, uint64_t limit, uint64_t now);

void await_window(int index, uint64_t limit);
uint64_t await_quiet(int index, const struct cost *cost, uint64_t now); /* the time afterwards */

#endif
