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

bool own_nvml(void)
{
    mutex_take(&counting);
    if (!up && !broken) {
        up = NVML(nvmlInit_v2()) == NVML_SUCCESS;
        broken = !up;
    }
    bool works = up;
    questions += works;
    pthread_mutex_unlock(&counting);
    return works;
}

/* counting held */
static void yield(void)
{
    if (up && yields && programs == 0 && questions == 0) {
        NVML(nvmlShutdown());
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
nvmlReturn own_nvml_program_ends(void)
{
    mutex_take(&counting);
    nvmlReturn rc = up && programs == 0 ? NVML_ERROR_UNINITIALIZED : NVML(nvmlShutdown());
    if (rc == NVML_SUCCESS && programs > 0 && --programs == 0)
        yields = true;
    yield();
    pthread_mutex_unlock(&counting);
    return rc;
}
