/* Rates of oes_cp: every flow its oes rate, the rest by longest remaining path.
 *
 * Kept are the shares of ports, the oes rates and what they take of every port, which an
 * event changes over few of them, and the order of all flows, by their keys of when they
 * were last looked at. A path only gets shorter: a flow that goes before the next one's old
 * key goes before all behind. What a port has beyond oes rates goes to few flows; each of
 * them takes the rest of a port, which is then closed. */

/* Take the flow of `group` out of the order. */
static void leave_order(const Layout *layout, State *state, int64_t group)
{
    int64_t *order = state->scratch.order, count = state->length[ORDERED]--;
    remove_at(order, count, place_among(layout, state, order, count, group));
}

/* Set the key of `group` to that of now. */
static inline void set_path_key(State *state, int64_t group, double now)
{
    state->scratch.key[group] = -coarse(remaining_path(state, group, now));
}

/* Put the flow of `group` into the order. */
static void enter_order(const Layout *layout, State *state, int64_t group)
{
    int64_t *order = state->scratch.order, count = state->length[ORDERED]++;
    insert_at(order, count, place_among(layout, state, order, count, group), group);
}

/* Note the flows that came and went, and what every port over which they did gives to each
 * of its flows now; return the number of ports queued, where that is another share. */
static int64_t note_shares(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t queued = 0;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (scratch->is_ordered[group])
            leave_order(layout, state, group);
        scratch->is_ordered[group] = state->fluid[group].active > 0;
        note_crowd(layout, state, group);
        if (scratch->is_ordered[group]) {
            note_flow(layout, state, group);
            set_path_key(state, group, now);
            enter_order(layout, state, group);
        }
        FOR_PORTS(port, layout, group) {
            double share = state->capacity[port] / (double)at_least(state->degree[port], 1);
            if (share != scratch->share[port]) {
                scratch->share[port] = share;
                scratch->queue[queued++] = port;
            }
        }
    }
    return queued;
}

/* Set the oes rate of `group`; return true where it is another one. */
static bool set_floor(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    double rate = least_over(layout, scratch->share, group), before = scratch->fair[group];
    scratch->fair[group] = scratch->rate[group] = rate;
    FOR_PORTS(port, layout, group)
        scratch->load[port] += rate - before;
    return rate != before;
}

/* Set oes rates where shares changed, and what they leave of every port. Over ports of
 * flows that came or went they are summed anew: no rounding grows. Return the number of
 * flows listed, whose rate that changes. */
static int64_t set_floors(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t queued = note_shares(layout, state, now), changed = 0;
    for (int64_t i = 0; i < queued; i++) {
        int64_t port = scratch->queue[i], first = layout->port_start[port];
        for (int64_t j = first; j < first + scratch->crowd[port]; j++)
            if (set_floor(layout, state, scratch->crossing[j]))
                scratch->changed[changed++] = scratch->crossing[j];
    }
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        set_floor(layout, state, state->touched[i]);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        FOR_PORTS(port, layout, state->touched[i]) {
            int64_t first = layout->port_start[port];
            scratch->load[port] = 0.0;
            for (int64_t k = first; k < first + scratch->crowd[port]; k++)
                scratch->load[port] += scratch->fair[scratch->crossing[k]];
        }
    }
    for (int64_t port = 0; port < layout->ports; port++) {
        double left = state->capacity[port] - scratch->load[port];
        scratch->residual[port] = left < CRUMB * state->capacity[port] ? 0.0 : left;
        scratch->open[port] = scratch->residual[port] > 0.0;
    }
    return changed;
}

/* The place, from `place` on, of the first flow of the order that begins and ends at ports
 * with something left, `count` for none. Without a branch per port: of 5,500 flows 63 get
 * something, and looking at the others was three fifths of this rule. */
static inline int64_t next_open(const Scratch *scratch, int64_t place, int64_t count)
{
    for (; place < count; place++) {
        PortPair pair = scratch->pair[scratch->order[place]];
        if (scratch->open[pair.first] & scratch->open[pair.last])
            break;
    }
    return place;
}

/* Let the flow at `first` stand where its path of now puts it; true where another one goes
 * before it. */
static inline bool falls_back(const Layout *layout, State *state, int64_t first, double now)
{
    int64_t *order = state->scratch.order, count = state->length[ORDERED];
    int64_t group = order[first], place = first;
    set_path_key(state, group, now);
    for (; place + 1 < count && precedes(layout, state, order[place + 1], group); place++)
        order[place] = order[place + 1];
    order[place] = group;
    return place > first;
}

/* Let `group` have what is left of its ports; note at those that it closes whose that is. */
static inline void give_rest(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    double rate = spare(layout, state, group);
    take(layout, state, group, rate);
    scratch->rate[group] += rate;
    FOR_PORTS(port, layout, group) {
        scratch->open[port] = scratch->residual[port] > 0.0;
        if (!scratch->open[port])
            scratch->head[port] = group;
    }
}

/* Let flows, the longest path first, take what is left. */
static void serve_longest(const Layout *layout, State *state, double now)
{
    const Scratch *scratch = &state->scratch;
    int64_t count = state->length[ORDERED], place = next_open(scratch, 0, count);
    while (place < count) {
        int64_t group = scratch->order[place];
        if (spare(layout, state, group) == 0.0) { /* of a port between */
            place++;
        } else if (!falls_back(layout, state, place, now)) {
            give_rest(layout, state, group);
            place++;
        }
        place = next_open(scratch, place, count);
    }
}

static void floor_and_critical_path(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t changed = set_floors(layout, state, now);
    for (int64_t port = 0; port < layout->ports; port++) {
        scratch->queue[port] = scratch->head[port];
        if (scratch->head[port] >= 0)
            scratch->rate[scratch->head[port]] = scratch->fair[scratch->head[port]];
        scratch->head[port] = -1;
    }
    serve_longest(layout, state, now);
    set_rates_of(state, scratch->changed, changed, now);
    set_rates_of(state, state->touched, state->length[TOUCHED], now);
    set_rates_of(state, scratch->queue, layout->ports, now);
    set_rates_of(state, scratch->head, layout->ports, now);
}
