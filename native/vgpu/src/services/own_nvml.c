#include "services/own_nvml.h"

#include "core/waits.h"

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static int programs, questions; /* references of the program; questions of ours under way */
static bool up, broken, yields; /* yields: the program has shut it down for the last time */

void own_nvml_after_fork(void)
{
    counting = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    questions = 0;
}

static bool begin(const struct real *real)
{
    return INSIDE(real->nvmlInit_v2()) == NVML_SUCCESS && real->nvmlDeviceGetHandleByIndex_v2 != NULL &&
           real->nvmlDeviceGetCount_v2 != NULL && real->nvmlDeviceGetUUID != NULL;
}

const struct real *own_nvml(void)
{
    const struct real *real = real_nvml();
    mutex_take(&counting);
    if (!up && !broken) {
        up = begin(real);
        broken = !up;
    }
    bool works = up;
    questions += works;
    pthread_mutex_unlock(&counting);
    return works ? real : NULL;
}

/* counting held */
static void yield(void)
{
    if (up && yields && programs == 0 && questions == 0) {
        INSIDE(real_table.nvmlShutdown());
        up = false;
    }
}

void own_nvml_done(void)
{
    mutex_take(&counting);
    questions--;
    yield();
    pthread_mutex_unlock(&counting);
}

void own_nvml_program_began(void)
{
    mutex_take(&counting);
    programs++;
    broken = false;
    pthread_mutex_unlock(&counting);
}

/* One shutdown too many would take ours away. */
nvmlReturn own_nvml_program_ends(const struct real *real)
{
    mutex_take(&counting);
    nvmlReturn rc = up && programs == 0 ? NVML_ERROR_UNINITIALIZED : INSIDE(real->nvmlShutdown());
    if (rc == NVML_SUCCESS && programs > 0 && --programs == 0)
        yields = true;
    yield();
    pthread_mutex_unlock(&counting);
    return rc;
}
