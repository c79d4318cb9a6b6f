/* The back ends there are, and the choice among them. */
#include "core/log.h"
#include "policy/backend.h"

const struct backend *const backend_list[] = {&backend_hook, NULL};

void backend_choose(const struct region_map *map, const struct config *config)
{
    for (int i = 0; backend_list[i] != NULL; i++)
        if (backend_list[i]->usable(map, config)) {
            backend = backend_list[i];
            break;
        }
    log_info("limits are held by the %s back end", backend->name);
}
