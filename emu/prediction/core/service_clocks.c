/* Bytes as a fluid: service clocks of groups and the ends that follow from them.
 *
 * All flows of a group have one rate, so one clock per group counts the bytes served to
 * each of them, and a flow ends when the clock reaches its mark. An event then costs one
 * clock per group whose rate changes, not one per flow. */

/* Add to a heap of `size` entries. */
static inline void push(double *keys, int64_t *items, int64_t size, double key, int64_t item)
{
    int64_t hole = size;
    while (hole > 0) {
        int64_t parent = (hole - 1) >> 1;
        if (keys[parent] <= key)
            break;
        keys[hole] = keys[parent];
        items[hole] = items[parent];
        hole = parent;
    }
    keys[hole] = key;
    items[hole] = item;
}

/* Put an entry in the place of the smallest key of a heap of `size`. */
static inline void replace(double *keys, int64_t *items, int64_t size, double key,
                           int64_t item)
{
    int64_t hole = 0;
    for (;;) {
        int64_t child = 2 * hole + 1;
        if (child >= size)
            break;
        child += keys[at_most(child + 1, size - 1)] < keys[child]; /* without a branch */
        if (keys[child] >= key)
            break;
        keys[hole] = keys[child];
        items[hole] = items[child];
        hole = child;
    }
    keys[hole] = key;
    items[hole] = item;
}

/* Remove the smallest key from a heap of `size`. */
static inline void pop(double *keys, int64_t *items, int64_t size)
{
    replace(keys, items, size - 1, keys[size - 1], items[size - 1]);
}

void heap_push(double *keys, int64_t *items, int64_t size, double key, int64_t item)
{
    push(keys, items, size, key, item);
}

void heap_pop(double *keys, int64_t *items, int64_t size) { pop(keys, items, size); }

/* Bring the clock of a group to `now`. */
static inline void advance(Fluid *fluid, double now)
{
    if (now > fluid->since)
        fluid->service += fluid->rate * (now - fluid->since);
    fluid->since = now;
}

double rate_of(const Layout *layout, const State *state, int64_t group)
{
    int64_t across;
    if (!layout->by_port)
        return state->fluid[group].rate;
    return state->clocks.clock[holder_of(layout, state, group, &across)].rate;
}

double service_of(const Layout *layout, const State *state, int64_t group, double now)
{
    const Fluid *fluid = state->fluid + group;
    if (layout->by_port && state->scratch.noted[group] > 0)
        return served_by_port(layout, state, group, now);
    return fluid->service + fluid->rate * larger(now - fluid->since, 0.0);
}

/* Have the rates of `group` computed anew. */
static inline void touch(State *state, int64_t group)
{
    if (!state->is_touched[group]) {
        state->is_touched[group] = true;
        state->touched[state->length[TOUCHED]++] = group;
    }
}

/* Set when the first flow ends of the group at `place`, negative: unknown. */
static inline void set_finish(State *state, int64_t place, double finish)
{
    state->finish[place] = finish;
    state->soonest[place / BLOCK] = -1.0;
}

/* Put `group` at `place` of those that have active flows. */
static inline void list_at(State *state, int64_t group, int64_t place, double finish)
{
    state->present[place] = group;
    state->fluid[group].place = place;
    set_finish(state, place, finish);
}

/* Count `flows` more (or fewer) active flows of `group`; its end is unknown. */
static inline void count_flows(const Layout *layout, State *state, int64_t group,
                               int64_t flows)
{
    Fluid *fluid = state->fluid + group;
    int64_t place = fluid->active > 0 ? fluid->place : state->length[PRESENT]++;
    fluid->active += flows;
    fluid->mark = state->mark[layout->slot[group]];
    if (fluid->active > 0) {
        list_at(state, group, place, -1.0);
    } else {
        int64_t last = --state->length[PRESENT];
        list_at(state, state->present[last], place, state->finish[last]);
        state->soonest[last / BLOCK] = -1.0;
    }
    FOR_PORTS(port, layout, group)
        state->degree[port] += flows;
    touch(state, group);
}

/* Make a flow of `edge` active; rates are to be computed before time goes on. */
static inline void open_flow(const Layout *layout, State *state, int64_t edge, double volume,
                             double now)
{
    int64_t group = layout->group[edge], first = layout->slot[group];
    Fluid *fluid = state->fluid + group;
    if (layout->by_port)
        leave_clock(layout, state, group, now);
    if (fluid->active == 0) {
        fluid->service = 0.0;
        fluid->since = now;
    } else {
        advance(fluid, now);
    }
    state->base[edge] = fluid->service;
    push(state->mark + first, state->mark_edge + first, fluid->active,
         fluid->service + volume, edge);
    count_flows(layout, state, group, 1);
}

/* Take the first flow of `group` to end out of the network; return its edge. */
static inline int64_t close_first(const Layout *layout, State *state, int64_t group,
                                  double now)
{
    int64_t first = layout->slot[group], edge = state->mark_edge[first];
    advance(state->fluid + group, now);
    pop(state->mark + first, state->mark_edge + first, state->fluid[group].active);
    count_flows(layout, state, group, -1);
    return edge;
}

/* Give the flows of `group`, which has some, `rate` from `now` on. */
static inline void set_rate(State *state, int64_t group, double rate, double now)
{
    Fluid *fluid = state->fluid + group;
    if (rate == fluid->rate && state->finish[fluid->place] >= 0.0)
        return;
    advance(fluid, now);
    fluid->rate = rate;
    double left = larger(fluid->mark - fluid->service, 0.0);
    set_finish(state, fluid->place, rate > 0.0 ? now + left / rate : INFINITY);
}

/* Give the first `count` of `groups` that have flows the rates of scratch.rate. */
static inline void set_rates_of(State *state, const int64_t *groups, int64_t count,
                                double now)
{
    for (int64_t i = 0; i < count; i++)
        if (groups[i] >= 0 && state->fluid[groups[i]].active > 0)
            set_rate(state, groups[i], state->scratch.rate[groups[i]], now);
}

/* When the next flow ends at the rates of now, infinity if none does. Looked at are groups
 * with active flows alone, 734 of 18,807 on a dense job. */
static inline double next_end(const Layout *layout, State *state)
{
    double time = INFINITY;
    if (layout->by_port)
        return least_of(state->clocks.finish, layout->ports);
    for (int64_t first = 0; first < state->length[PRESENT]; first += BLOCK) {
        double *soonest = state->soonest + first / BLOCK;
        if (*soonest < 0.0)
            *soonest = least_of(state->finish + first,
                                at_most(state->length[PRESENT] - first, BLOCK));
        time = smaller(time, *soonest);
    }
    return time;
}
