#include "services/module_memory.h"

#include "book/image.h"
#include "core/quiet.h"
#include "core/numbers.h"
#include "services/blocks.h"
#include "services/pools.h"
#include "services/process_state.h"
#include "services/reconcile.h"

#include <errno.h>

enum { LOADING_LAZY = 2 };

int module_device(void)
{
    int device = process_serves() ? process_current_device() : -1;
    return device >= 0 && memory_limit(&process_state.map, device) != 0 ? device : -1;
}

static int capability(int device)
{
    int major = 0, minor = 0, ordinal = process_state.ordinal_of[device];
    if (ordinal < 0 || CUDA(cuDeviceGetAttribute(&major, DEVICE_ATTRIBUTE_CAPABILITY_MAJOR, ordinal)) != CUDA_SUCCESS ||
        CUDA(cuDeviceGetAttribute(&minor, DEVICE_ATTRIBUTE_CAPABILITY_MINOR, ordinal)) != CUDA_SUCCESS)
        return 0;
    return 10 * major + minor;
}

static bool loads_code_at_once(void)
{
    int mode = LOADING_LAZY;
    return (CUDA(cuModuleGetLoadingMode(&mode)) == CUDA_SUCCESS && mode != LOADING_LAZY);
}

/* Of PTX the code is only bounded: that there is some takes a block. */
static void expect(struct module_loading *loading, const struct module_image *image)
{
    int of_card = capability(loading->device);
    struct image_need need = image->path != NULL ? image_need_in_file(image->path, of_card) : image_need_in_memory(image->data, of_card);
    loading->most = loading->holds = INT64_MAX;
    loading->silent = !need.known && (image->data != NULL || image->path != NULL);
    if (!need.known)
        return;
    uint64_t code = !loads_code_at_once() ? 0 : need.translated ? 1 : need.code;
    loading->least = need.variables;
    loading->expected = blocks_bytes(need.variables + code);
    loading->most = blocks_bytes(need.variables) + blocks_bytes(need.code) + BLOCK_BYTES;
    if (need.variables == 0 || need.pieces > 0) /* each in a block of its own, at most; of a cubin nobody knows how many there are */
        loading->holds = (need.variables + need.pieces * (BLOCK_BYTES - 1)) / BLOCK_BYTES * BLOCK_BYTES + (code > 0 ? blocks_bytes(need.code) : 0);
}

/* False when there is no room for what the image says. */
bool module_load_begin(struct module_loading *loading, const struct module_image *image)
{
    KEEP_ERRNO;
    *loading = (struct module_loading){.device = module_device(), .before = {.device = -1}};
    bool room = true;
    if (loading->device >= 0) {
        blocks_mingle(loading->device);
        reconcile_device(loading->device, false); /* what slipped past earlier is not this module's */
        expect(loading, image);
        room = reconcile_expect(loading->device, loading->expected);
        if (room)
            loading->before = free_delta_in_context(loading->device);
        else
            process_tell_refusal(loading->device, loading->expected);
    }
    return room;
}

static uint64_t within(int64_t taken, uint64_t least, uint64_t most)
{
    return clamp_u64(taken > 0 ? (uint64_t)taken : 0, least, most);
}

static bool claim(const struct module_loading *loading, uint64_t taken, struct claim *claimed)
{
    return reconcile_claim(loading->device, loading->expected, taken, loading->holds, claimed) ||
           (pools_reconcile(loading->device, true) && reconcile_claim(loading->device, loading->expected, taken, loading->holds, claimed));
}

static void keep(void *handle, int device, const struct claim *claim)
{
    struct record record = {.key = (uint64_t)(uintptr_t)handle, .bytes = claim->bytes, .owner = process_current_context(),
                            .device = (int16_t)device, .kind = RECORD_MODULE, .charged = 1, .references = 1,
                            .mappings = (uint32_t)(claim->lodges / BLOCK_BYTES)};
    records_insert(&record);
}

static struct claim claim_of(const struct record *module)
{
    return (struct claim){module->bytes, module->mappings * BLOCK_BYTES};
}

CUresult module_loaded(CUresult rc, void **handle, const struct module_loading *loading, CUresult (*unload)(void *))
{
    if (loading->device < 0)
        return rc;
    KEEP_ERRNO;
    struct claim claimed;
    if (rc != CUDA_SUCCESS) {
        reconcile_expected(loading->device, loading->expected);
    } else if (loading->expected > 0 || loading->silent || free_delta_less(&loading->before)) {
        uint64_t taken = within(free_delta_taken(&loading->before), loading->least, loading->most);
        if (claim(loading, taken, &claimed)) {
            keep(*handle, loading->device, &claimed);
        } else {
            INSIDE(unload(*handle));
            reconcile_expected(loading->device, loading->expected);
            process_tell_refusal(loading->device, taken);
            rc = CUDA_ERROR_OUT_OF_MEMORY;
        }
    } else {
        reconcile_expected(loading->device, 0);
    }
    return rc;
}

CUresult module_unload(CUresult (*unload)(void *), void *handle)
{
    if (!process_serves())
        return INSIDE(unload(handle));
    struct parting parting = process_part(RECORD_MODULE, (uint64_t)(uintptr_t)handle);
    int device = parting.known ? parting.record.device : module_device();
    struct claim claimed = claim_of(&parting.record);
    struct free_delta before = {.device = -1};
    if (device >= 0) {
        moves_begin(device);
        if (reconcile_has_residue(device))
            before = free_delta_in_context(device); /* code that was loaded later goes with it */
    }
    late_loading_ending();
    CUresult rc = INSIDE(unload(handle));
    late_loading_ended();
    KEEP_ERRNO;
    if (rc != CUDA_SUCCESS && parting.known)
        records_insert(&parting.record);
    if (device >= 0 && rc == CUDA_SUCCESS && (parting.known || before.device >= 0))
        reconcile_unloaded(device, parting.known ? &claimed : NULL, free_delta_taken(&before));
    else if (device >= 0)
        moves_end(device);
    return rc;
}

void module_dropped(const struct record *module)
{
    struct claim claimed = claim_of(module);
    reconcile_return(module->device, &claimed);
}

/* ---- late loading ---- */

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
    uint64_t hash = mixed(shared_get(&handles) + 1, (uint64_t)(uintptr_t)of);
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
    return shared_peek(place_of(question)) == question && shared_get(&ending) == 0;
}

struct late_loading late_loading_begin(enum late_kind kind, const void *of, const char *name)
{
    KEEP_ERRNO;
    struct late_loading loading = {.kind = kind, .before = {.device = -1}};
    int device = module_device();
    if (device >= 0) {
        loading.question = question(of, name);
        if (!is_answered(loading.question)) {
            loading.before = free_delta_in_context(device);
            moves_begin(device);
        }
    }
    return loading;
}

static int64_t taken_from_card(const struct free_delta *before)
{
    int64_t taken = free_delta_taken(before);
    return taken < 0 ? 0 : taken < (int64_t)CODE_MOST ? taken : (int64_t)CODE_MOST;
}

CUresult late_loading_end(CUresult rc, const struct late_loading *loading)
{
    int device = loading->before.device;
    KEEP_ERRNO;
    if (device >= 0 && rc == CUDA_SUCCESS) {
        if (loading->kind == LATE_VARIABLES)
            suballocation_moves_in(device, UINT64_MAX);
        reconcile_changed(device, taken_from_card(&loading->before));
        shared_put(place_of(loading->question), loading->question);
    } else if (device >= 0) {
        moves_end(device);
    }
    return rc;
}
