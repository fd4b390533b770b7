/* What holds of every state between two instants, once rates are set: for tests.
 *
 * Written from what core.h says of the fields, with counts from scratch where the scheduler
 * keeps them up to date: an update that is missed shows at the event where it is. Each
 * function returns the first sentence that is false, and its item; NULL where all hold. */

#include "inline.h"

/* The share by which rates over a port, or service at an end, may be beyond it: sums. */
static const double SLACK = 1e-8;

/* The share by which the level of a port may be above those behind it. */
static const double NEARLY = 1e-11;

#define HOLDS(condition, of, sentence) \
    do { \
        if (!(condition)) { \
            *item = (of); \
            return sentence; \
        } \
    } while (0)

static bool is_listed(const int64_t *list, int64_t count, int64_t entry)
{
    int64_t times = 0;
    for (int64_t i = 0; i < count; i++)
        times += list[i] == entry;
    return times == 1;
}

static bool is_heap(const double *keys, int64_t size)
{
    for (int64_t i = 1; i < size; i++)
        if (keys[(i - 1) / 2] > keys[i])
            return false;
    return true;
}

/* Nothing is left to be drawn from what has happened. (Ports stay dirty that changed while
 * nothing crossed them.) */
static const char *broken_lists(const State *state, int64_t *item)
{
    static const int64_t empty[] = {WOKEN, WAITING, TOUCHED, CALLING, WALKS};
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        HOLDS(state->length[empty[i]] == 0, empty[i], "a list is empty once rates are set");
    return NULL;
}

static const char *broken_task(const Layout *layout, const State *state, int64_t task,
                               int64_t *item)
{
    int64_t started = state->started[task], ended = state->ended[task], missing = 0;
    HOLDS(0 <= ended && ended <= started, task, "no more iterations ended than started");
    HOLDS(started <= layout->rounds[task], task, "no more iterations start than there are");
    HOLDS(started <= ended + 1, task, "one iteration of a task runs at a time");
    for (int64_t i = layout->in_start[task]; i < layout->in_start[task + 1]; i++)
        missing += state->allowed[layout->in_edge[i]] <= started;
    HOLDS(state->missing[task] == missing, task, "missing counts the edges waited for");
    bool may = started == ended && started < layout->rounds[task] && missing == 0;
    bool queues = is_listed(state->queued, state->length[QUEUED], task);
    HOLDS(may == queues, task, "a task that may start waits for a slot, and no other does");
    return NULL;
}

static const char *broken_edge(const Layout *layout, const State *state, bool online,
                               int64_t edge, int64_t *item)
{
    int64_t ready = state->ready[edge], delivered = state->delivered[edge];
    int64_t sent = layout->sent[edge], ended = state->ended[layout->source[edge]];
    HOLDS(ready == at_most(ended, sent), edge, "what a task ended is ready on its edges");
    HOLDS(0 <= delivered && delivered <= ready, edge, "nothing arrives before it is ready");
    HOLDS(layout->group[edge] >= 0 || delivered == ready, edge, "a handoff takes no time");
    int64_t landed = state->landed[edge], allowed = landed + layout->lag[edge];
    HOLDS(landed <= delivered, edge, "nothing lands before it is sent");
    HOLDS(latency_of(layout, edge) > 0.0 || landed == delivered, edge,
          "what has no latency lands at once");
    HOLDS(is_listed(state->landing_edge, state->length[LANDINGS], edge) == (landed < delivered),
          edge, "the next landing of an edge is known while one is to come");
    if (landed == sent && sent > 0)
        allowed = layout->iterations;
    HOLDS(state->allowed[edge] == allowed, edge, "an edge lets start what has its input");
    HOLDS(state->served[edge] <= delivered + 1, edge, "one flow of an edge goes at a time");
    HOLDS(!online || state->arrived[edge] <= delivered + 1, edge, "no flow arrives ahead");
    HOLDS(state->served[edge] <= delivered || state->arrived[edge] <= delivered, edge,
          "a flow that is served and has arrived has ended");
    return NULL;
}

/* True where the present flow of `edge` has to be active, without channels. */
static bool must_flow(const Layout *layout, const State *state, int64_t edge)
{
    return layout->group[edge] >= 0 && state->ready[edge] > state->delivered[edge]
           && state->served[edge] <= state->delivered[edge];
}

static const char *broken_group(const Layout *layout, const State *state, double now,
                                int64_t group, int64_t *item)
{
    const Fluid *fluid = state->fluid + group;
    int64_t first = layout->slot[group], count = fluid->active;
    HOLDS(0 <= count && first + count <= layout->slot[group + 1], group,
          "as many flows at most are active as a group has edges");
    HOLDS(count > 0 || fluid->rate == fluid->rate, group, "a rate is a number");
    if (count == 0)
        return NULL;
    HOLDS(is_heap(state->mark + first, count), group, "ends of flows are a heap");
    for (int64_t place = first; place < first + count; place++) {
        int64_t edge = state->mark_edge[place];
        HOLDS(layout->group[edge] == group && state->ready[edge] > state->delivered[edge]
                  && state->served[edge] <= state->delivered[edge],
              edge, "an active flow is ready and not served");
        HOLDS(is_listed(state->mark_edge + first, count, edge), edge, "a flow is active once");
    }
    HOLDS(fluid->mark == state->mark[first], group, "the mark of a group is its first end");
    HOLDS(fluid->since <= now && fluid->rate >= 0.0, group, "a clock goes forward");
    double service = service_of(layout, state, group, now);
    HOLDS(service <= fluid->mark * (1.0 + SLACK), group, "no flow is served beyond its end");
    for (int64_t place = first; place < first + count; place++) {
        double base = state->base[state->mark_edge[place]];
        HOLDS(0.0 <= base && base <= service && base < state->mark[place], group,
              "a flow begins with what its group was served by then");
    }
    int64_t place = fluid->place;
    HOLDS(0 <= place && place < state->length[PRESENT] && state->present[place] == group, group,
          "a group with flows is at its place among the present");
    if (layout->by_port)
        return NULL;
    double finish = state->finish[place], soonest = state->soonest[place / BLOCK];
    HOLDS(finish >= fluid->since && (finish < INFINITY) == (fluid->rate > 0.0), group,
          "the end of a flow that has a rate is known");
    HOLDS(soonest <= finish, group, "no end is before the soonest of its block");
    return NULL;
}

/* The seats at a port are of its active groups, those on its clock first. */
static const char *broken_seats(const Layout *layout, const State *state, int64_t port,
                                int64_t *item)
{
    const PortClocks *clocks = &state->clocks;
    int64_t first = layout->port_start[port], flows = 0;
    double left = state->capacity[port];
    HOLDS(clocks->order[clocks->rank[port]] == port, port, "a port has its place in the order");
    HOLDS(!clocks->stale[clocks->rank[port]], port, "a level is known once rates are set");
    for (int64_t i = first; i < first + state->scratch.crowd[port]; i++) {
        int64_t group = clocks->member[i], across = clocks->over[i].across;
        bool goes = i < first + clocks->clock[port].groups;
        double service = service_of(layout, state, group, clocks->clock[port].since);
        HOLDS(clocks->over[i].flows == state->fluid[group].active, group, "a seat counts flows");
        HOLDS(goes == (clocks->rank[port] < clocks->rank[across]), group,
              "a group is on the clock of its port that stands first");
        HOLDS(!goes || clocks->goal[i] < INFINITY, group, "a group with flows is on a clock");
        HOLDS(service <= state->fluid[group].mark * (1.0 + SLACK), group, "a goal is ahead");
        flows += goes ? clocks->over[i].flows : 0;
        left -= goes ? 0.0 : (double)clocks->over[i].flows * clocks->clock[across].rate;
    }
    HOLDS(clocks->flows[port] == flows, port, "the flows on a clock are counted");
    HOLDS(fabs(clocks->left[port] - left) <= SLACK * state->capacity[port], port,
          "what other clocks leave of a port is summed");
    return NULL;
}

/* The rates of groups over a port are what it has at most, and by the rule at least. */
static const char *broken_port(const Layout *layout, const State *state, int64_t port,
                               int64_t *item)
{
    int64_t flows = 0, groups = 0, noted = 0;
    double rates = 0.0;
    const int64_t *noted_of = state->scratch.noted;
    for (int64_t i = layout->port_start[port]; i < layout->port_start[port + 1]; i++) {
        int64_t group = layout->port_group[i], active = state->fluid[group].active;
        flows += active;
        groups += active > 0;
        rates += active > 0 ? (double)active * rate_of(layout, state, group) : 0.0;
        noted += noted_of != NULL ? noted_of[group] : 0;
    }
    HOLDS(state->degree[port] == flows, port, "the degree of a port counts its flows");
    HOLDS(rates <= state->capacity[port] * (1.0 + SLACK), port,
          "rates over a port are at most its capacity");
    if (layout->policy == MAXMIN || layout->policy == OES_CP || layout->policy == FIFO
        || layout->policy == WEIGHTED_MAXMIN || layout->policy == OMCOFLOW_WC
        || layout->policy == OMCOFLOW_GAMMA) {
        HOLDS(noted == flows, port, "all flows over a port are noted");
        HOLDS(state->scratch.crowd[port] == groups, port, "the groups over a port are listed");
    }
    if (layout->policy == MRTF || layout->policy == MRTF_EXCLUSIVE) {
        int64_t served = state->scratch.offers.served[port];
        HOLDS(noted == groups, port, "all flows over a port are noted");
        HOLDS(state->scratch.crowd[port] + served == groups, port,
              "the groups over a port wait or are served");
    }
    return NULL;
}

/* By oes and max-min a rate follows from what is kept of ports alone. */
static const char *broken_rate(const Layout *layout, const State *state, int64_t group,
                               int64_t *item)
{
    double share = INFINITY;
    if (state->fluid[group].active == 0 || layout->policy > MAXMIN)
        return NULL;
    double rate = rate_of(layout, state, group);
    if (layout->policy == MAXMIN)
        share = least_over(layout, state->levels.level, group);
    else
        FOR_PORTS(port, layout, group)
            share = smaller(share, state->capacity[port] / (double)state->degree[port]);
    double slack = layout->by_port ? NEARLY * share : 0.0;
    HOLDS(fabs(rate - share) <= slack, group, "a rate is the least share of its ports");
    return NULL;
}

/* The slots of `pool` by now, before any is taken. */
static int64_t slots_of(const Layout *layout, const State *state, int64_t pool)
{
    for (int64_t tuner = 0; tuner < layout->tuners.count; tuner++)
        if (layout->tuners.tuned[tuner] == pool)
            return state->quota[tuner];
    return layout->pool_slots[pool];
}

static const char *broken_pool(const Layout *layout, const State *state, int64_t pool,
                               int64_t *item)
{
    int64_t taken = 0, waiting = 0;
    for (int64_t task = 0; task < layout->tasks; task++) {
        taken += layout->takes[task] == pool ? state->started[task] : 0;
        taken -= layout->frees[task] == pool ? state->ended[task] : 0;
    }
    for (int64_t i = 0; i < state->length[QUEUED]; i++)
        waiting += layout->takes[state->queued[i]] == pool;
    int64_t slots = slots_of(layout, state, pool), left = state->free[pool];
    HOLDS(slots < 0 || left == slots - taken, pool, "a slot is free or taken");
    HOLDS(slots < 0 || waiting == 0 || left <= 0, pool, "nobody waits for a free slot");
    HOLDS(slots < 0 || layout->tuners.count > 0 || left >= 0, pool, "no slot is taken twice");
    return NULL;
}

static const char *broken_line(const State *state, int64_t channel, int64_t *item)
{
    const int64_t *tally = state->lines.tally + TALLIES * channel;
    HOLDS(tally[LEFT] <= tally[ADMITTED] && tally[ADMITTED] <= tally[JOINED], channel,
          "who leaves a line was admitted, who is admitted had joined");
    int64_t under_way = tally[JOINED] > tally[LEFT];
    HOLDS(tally[ADMITTED] - tally[LEFT] == under_way, channel,
          "one flow of a channel has its turn while any waits");
    return NULL;
}

/* What does not hold of any of `count` items; `check` is a call with `i`. */
#define FIRST_BROKEN(count, check) \
    for (int64_t i = 0; i < (count) && sentence == NULL; i++) \
        sentence = (check);

const char *broken_invariant(const Layout *layout, const State *state, double now, bool online,
                             int64_t *item)
{
    const char *sentence = broken_lists(state, item);
    FIRST_BROKEN(layout->tasks, broken_task(layout, state, i, item))
    FIRST_BROKEN(layout->edges, broken_edge(layout, state, online, i, item))
    FIRST_BROKEN(layout->groups, broken_group(layout, state, now, i, item))
    FIRST_BROKEN(layout->ports, broken_port(layout, state, i, item))
    FIRST_BROKEN(layout->by_port ? layout->ports : 0, broken_seats(layout, state, i, item))
    FIRST_BROKEN(layout->groups, broken_rate(layout, state, i, item))
    FIRST_BROKEN(layout->pools, broken_pool(layout, state, i, item))
    FIRST_BROKEN(layout->channels, broken_line(state, i, item))
    int64_t flows = 0, present = 0;
    for (int64_t group = 0; group < layout->groups; group++) {
        flows += state->fluid[group].active;
        present += state->fluid[group].active > 0;
    }
    for (int64_t edge = 0; edge < layout->edges; edge++)
        flows -= must_flow(layout, state, edge);
    if (sentence == NULL && layout->channels == 0 && flows != 0)
        sentence = "every flow that is ready and not served is active";
    if (sentence == NULL && present != state->length[PRESENT])
        sentence = "the groups with active flows are listed";
    if (sentence == NULL && state->length[LANDINGS] > 0 && state->landing[0] < now)
        sentence = "what was to land by now has landed";
    if (sentence == NULL && !is_heap(state->landing, state->length[LANDINGS]))
        sentence = "landings are a heap";
    if (sentence == NULL && online && !is_heap(state->due, state->length[GATES]))
        sentence = "the ends of gates are a heap";
    return sentence;
}
