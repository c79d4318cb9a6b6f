#include "services/late_loading.h"

#include "services/process_state.h"
#include "services/suballocation.h"
#include "services/module_memory.h"
#include "services/reconcile.h"

#include <errno.h>

#define CODE_MOST (32ull << 20) /* no function's code is larger: the rest was somebody else's */
enum { REMEMBERED = 4096 };

/* By the low bits of the question. What is overwritten is looked at once more. */
static uint64_t answered[REMEMBERED];
static uint64_t handles; /* another one for each time that handles ended */
static int ending;

void late_loading_forget(void)
{
    __atomic_add_fetch(&handles, 1, __ATOMIC_SEQ_CST);
}

void late_loading_ending(void)
{
    __atomic_add_fetch(&ending, 1, __ATOMIC_SEQ_CST);
}

void late_loading_ended(void)
{
    late_loading_forget();
    __atomic_sub_fetch(&ending, 1, __ATOMIC_SEQ_CST);
}

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 29;
}

/* Of the same library every context has its own. */
static uint64_t question(const void *of, const char *name)
{
    uint64_t hash = mixed(__atomic_load_n(&handles, __ATOMIC_SEQ_CST) + 1, (uint64_t)(uintptr_t)of);
    hash = mixed(hash, process_current_context());
    for (const char *at = name; at != NULL && *at != '\0'; at++)
        hash = mixed(hash, (unsigned char)*at);
    return hash;
}

static uint64_t *place_of(uint64_t question)
{
    return &answered[question % REMEMBERED];
}

static bool is_answered(uint64_t question)
{
    return __atomic_load_n(place_of(question), __ATOMIC_RELAXED) == question && __atomic_load_n(&ending, __ATOMIC_SEQ_CST) == 0;
}

struct late_loading late_loading_begin(enum late_kind kind, const void *of, const char *name)
{
    int saved = errno;
    struct late_loading loading = {.kind = kind, .before = {.device = -1}};
    int device = module_device();
    if (device >= 0) {
        loading.question = question(of, name);
        if (!is_answered(loading.question)) {
            loading.before = free_delta_in_context(device);
            moves_begin(device);
        }
    }
    errno = saved;
    return loading;
}

static int64_t taken_from_card(const struct free_delta *before)
{
    int64_t taken = free_delta_taken(before);
    return taken < 0 ? 0 : taken < (int64_t)CODE_MOST ? taken : (int64_t)CODE_MOST;
}

CUresult late_loading_end(CUresult rc, const struct late_loading *loading)
{
    int saved = errno, device = loading->before.device;
    if (device >= 0 && rc == CUDA_SUCCESS) {
        if (loading->kind == LATE_VARIABLES)
            suballocation_moves_in(device, UINT64_MAX);
        reconcile_changed(device, taken_from_card(&loading->before));
        __atomic_store_n(place_of(loading->question), loading->question, __ATOMIC_RELAXED);
    } else if (device >= 0) {
        moves_end(device);
    }
    errno = saved;
    return rc;
}
