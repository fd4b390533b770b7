/* The scheduler as one translation unit: its functions are small, called at every event
 * and inlined into the event loops. */
#include "inline.h"

#define FOR_HOPS(i, layout, group) \
    for (int64_t i = (layout)->hop_start[group], i##_end = (layout)->hop_start[(group) + 1]; \
         i < i##_end; i++)

/* The ports that the flows of a group cross. */
#define FOR_PORTS(port, layout, group) \
    for (int64_t port, port##_i = (layout)->hop_start[group], \
                       port##_end = (layout)->hop_start[(group) + 1]; \
         port##_i < port##_end && (port = (layout)->hop[port##_i], true); port##_i++)

#include "room.c"
#include "layout.c"
#include "state.c"
#include "service_clocks.c"
#include "priorities.c"
#include "crowds.c"
#include "max_min.c"
#include "sharing.c"
#include "shortest_remaining.c"
#include "critical_path.c"
#include "coflows.c"
#include "rates.c"
#include "rate_changes.c"
#include "dependencies.c"
#include "tuning.c"
#include "machine_speeds.c"
#include "event_batch.c"
#include "invariants.c"
#include "events.c"
