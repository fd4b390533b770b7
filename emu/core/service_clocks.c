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

/* Bring the clock of `group` to `now`. */
static inline void advance(State *state, int64_t group, double now)
{
    if (now > state->since[group])
        state->service[group] += state->rate[group] * (now - state->since[group]);
    state->since[group] = now;
}

/* Have the rates of `group` computed anew. */
static inline void touch(State *state, int64_t group)
{
    if (!state->is_touched[group]) {
        state->is_touched[group] = true;
        state->touched[state->length[TOUCHED]++] = group;
    }
}

/* Count `flows` more (or fewer) active flows of `group`; its end is unknown. */
static inline void count_flows(const Layout *layout, State *state, int64_t group,
                               int64_t flows)
{
    state->active[group] += flows;
    state->finish[group] = state->active[group] > 0 ? -1.0 : INFINITY;
    state->soonest[group >> layout->block_bits] = -1.0;
    FOR_PORTS(port, layout, group)
        state->degree[port] += flows;
    touch(state, group);
}

/* Make a flow of `edge` active; rates are to be computed before time goes on. */
static inline void open_flow(const Layout *layout, State *state, int64_t edge, double volume,
                             double now)
{
    int64_t group = layout->group[edge], first = layout->slot[group];
    if (state->active[group] == 0) {
        state->service[group] = 0.0;
        state->since[group] = now;
    } else {
        advance(state, group, now);
    }
    state->base[edge] = state->service[group];
    push(state->mark + first, state->mark_edge + first, state->active[group],
         state->service[group] + volume, edge);
    count_flows(layout, state, group, 1);
}

/* Take the first flow of `group` to end out of the network; return its edge. */
static inline int64_t close_first(const Layout *layout, State *state, int64_t group,
                                  double now)
{
    int64_t first = layout->slot[group], edge = state->mark_edge[first];
    advance(state, group, now);
    pop(state->mark + first, state->mark_edge + first, state->active[group]);
    count_flows(layout, state, group, -1);
    return edge;
}

/* Give the flows of `group`, which has some, `rate` from `now` on. */
static inline void set_rate(const Layout *layout, State *state, int64_t group, double rate,
                            double now)
{
    if (rate == state->rate[group] && state->finish[group] >= 0.0)
        return;
    advance(state, group, now);
    state->rate[group] = rate;
    state->soonest[group >> layout->block_bits] = -1.0;
    double left = state->mark[layout->slot[group]] - state->service[group];
    state->finish[group] = rate > 0.0 ? now + larger(left, 0.0) / rate : INFINITY;
}

/* Give the first `count` of `groups` that have flows the rates of scratch.rate. */
static inline void set_rates_of(const Layout *layout, State *state, const int64_t *groups,
                                int64_t count, double now)
{
    for (int64_t i = 0; i < count; i++)
        if (groups[i] >= 0 && state->active[groups[i]] > 0)
            set_rate(layout, state, groups[i], state->scratch.rate[groups[i]], now);
}

/* The least of some times: four at once, as none is NaN. */
static inline double least_of(const double *times, int64_t count)
{
    double a = INFINITY, b = INFINITY, c = INFINITY, d = INFINITY;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        a = smaller(a, times[i]);
        b = smaller(b, times[i + 1]);
        c = smaller(c, times[i + 2]);
        d = smaller(d, times[i + 3]);
    }
    for (; i < count; i++)
        a = smaller(a, times[i]);
    return smaller(smaller(a, b), smaller(c, d));
}

/* When the next flow ends at the rates of now, infinity if none does. */
static inline double next_end(const Layout *layout, State *state)
{
    double time = INFINITY;
    for (int64_t block = 0; block < layout->blocks; block++) {
        if (state->soonest[block] < 0.0) {
            int64_t first = block << layout->block_bits;
            int64_t end = at_most((block + 1) << layout->block_bits, layout->groups);
            state->soonest[block] = least_of(state->finish + first, end - first);
        }
        time = smaller(time, state->soonest[block]);
    }
    return time;
}
