/* Rates by priority: one flow after the other takes what is left on its hops.
 *
 * Keys that are equal up to rounding must count as equal, or the last bit of a sum would
 * decide the order: keys are compared to 32 bits, then come the iteration served and the
 * names of destination and source, never the order in the file. Likewise what is left of
 * a port after it has been given away counts as nothing. */

/* Longest remaining paths, for policies that look ahead and for bounds: along a path
 * tasks take their times, flows between machines the time they would take alone, and
 * iterations of a task or an edge follow one another: constraints (7)-(11). */

void means(const double *values, int64_t rows, int64_t columns, const int64_t *counts,
           double *mean)
{
    for (int64_t row = 0; row < rows; row++) {
        mean[row] = 0.0;
        for (int64_t i = 0; i < counts[row]; i++)
            mean[row] += values[row * columns + i] / (double)counts[row];
    }
}

void longest_paths(const Layout *layout, const double *times, const double *volumes,
                   int64_t columns, double *from_task, double *after_flow)
{
    int64_t iterations = layout->iterations;
    for (int64_t n = iterations - 1; n >= 0; n--) {
        for (int64_t place = layout->tasks - 1; place >= 0; place--) {
            int64_t task = layout->order[place];
            if (n >= layout->rounds[task])
                continue;
            double longest = n + 1 < iterations ? from_task[task * iterations + n + 1] : 0.0;
            for (int64_t i = layout->out_start[task]; i < layout->out_start[task + 1]; i++) {
                int64_t edge = layout->out_edge[i], arrival = n + layout->lag[edge];
                const double *volume = volumes + edge * columns;
                double *after = after_flow + edge * iterations;
                if (n >= layout->sent[edge])
                    continue;
                double path = from_task[layout->destination[edge] * iterations + arrival]
                              + latency_of(layout, edge);
                if (layout->group[edge] >= 0) {
                    double rate = least_over(layout, layout->capacity, layout->group[edge]);
                    if (n + 1 < layout->sent[edge]) {
                        double behind = volume[(n + 1) % columns] / rate;
                        path = larger(path, behind + after[n + 1]);
                    }
                    after[n] = path;
                    path += volume[n % columns] / rate;
                }
                longest = larger(longest, path);
            }
            from_task[task * iterations + n] = times[task * columns + n % columns] + longest;
        }
    }
}

/* Less than this share of a port's capacity is nothing. */
static const double CRUMB = 1e-9;

/* `value` to 32 bits: Veltkamp's splitting, three operations. Taking it apart by frexp
 * and ldexp was two fifths of a simulation of 1,814 flows under mrtf. */
static inline double coarse(double value)
{
    if (isinf(value))
        return value;
    double spread = value * (2097152.0 + 1.0); /* 2^21: leaves 53 - 21 bits */
    return spread - (spread - value);
}

/* The edge of the only flow of `group`, or of the one that ended last. */
static inline int64_t flow_edge(const Layout *layout, const State *state, int64_t group)
{
    return state->mark_edge[layout->slot[group]];
}

/* The bytes that the only flow of a group has left; its service began at 0. Never quite 0:
 * a flow whose last byte was not reported yet still needs a rate. */
static inline double remaining(const Fluid *fluid, double now)
{
    double served = fluid->service + fluid->rate * (now - fluid->since);
    return larger(fluid->mark - served, 1e-9 * fluid->mark);
}

/* Note what stays the same of the flow of `group` as long as it is active. */
static inline void note_flow(const Layout *layout, State *state, int64_t group)
{
    int64_t edge = flow_edge(layout, state, group);
    state->scratch.turn[group] = state->delivered[edge] + layout->lag[edge];
    state->scratch.alone[group] = least_over(layout, state->capacity, group);
    if (state->after != NULL)
        state->scratch.after[group] =
            state->after[edge * layout->iterations + state->delivered[edge]];
}

/* Bring scratch.order up to date, what stays in its order and the new behind. Rates then
 * cost what active flows do, not all edges. */
static void note_active(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    int64_t active = state->length[ORDERED];
    bool ended = false;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->fluid[group].active == 0) {
            ended = ended || scratch->is_ordered[group];
            continue;
        }
        note_flow(layout, state, group);
        if (!scratch->is_ordered[group]) {
            scratch->is_ordered[group] = true;
            scratch->order[active++] = group;
        }
    }
    state->length[ORDERED] = active;
    if (!ended)
        return;
    state->length[ORDERED] = 0;
    for (int64_t i = 0; i < active; i++) {
        int64_t group = scratch->order[i];
        scratch->is_ordered[group] = state->fluid[group].active > 0;
        if (scratch->is_ordered[group])
            scratch->order[state->length[ORDERED]++] = group;
    }
}

/* True where the flow of `one` goes before that of `other`. */
static inline bool precedes(const Layout *layout, const State *state, int64_t one,
                            int64_t other)
{
    const Scratch *scratch = &state->scratch;
    if (scratch->key[one] != scratch->key[other])
        return scratch->key[one] < scratch->key[other];
    if (scratch->turn[one] != scratch->turn[other])
        return scratch->turn[one] < scratch->turn[other];
    return layout->rank[flow_edge(layout, state, one)]
           < layout->rank[flow_edge(layout, state, other)];
}

/* The number of flows in `order`, which is sorted, that go before that of `group`. */
static int64_t place_among(const Layout *layout, const State *state, const int64_t *order,
                           int64_t count, int64_t group)
{
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (precedes(layout, state, order[middle], group))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Give `rate` of what is left of `port` away. */
static inline void take_of(State *state, int64_t port, double rate)
{
    double *residual = state->scratch.residual + port;
    *residual -= rate;
    if (*residual < CRUMB * state->capacity[port])
        *residual = 0.0;
}

/* Give `rate` to the only flow of `group`, at the cost of its ports. */
static inline void take(const Layout *layout, State *state, int64_t group, double rate)
{
    FOR_PORTS(port, layout, group)
        take_of(state, port, rate);
}

/* The bandwidth left on the ports of `group`, bytes per second. */
static inline double spare(const Layout *layout, const State *state, int64_t group)
{
    return least_over(layout, state->scratch.residual, group);
}

/* Nothing of any port is given away yet. */
static void empty_ports(const Layout *layout, State *state)
{
    for (int64_t port = 0; port < layout->ports; port++)
        state->scratch.residual[port] = state->capacity[port];
}

/* The longest path from now to the end through the flow of `group`. */
static inline double remaining_path(const State *state, int64_t group,
                                    double now)
{
    double flow = remaining(state->fluid + group, now) / state->scratch.alone[group];
    return flow + state->scratch.after[group];
}
