/* Fluid lines: which flows serve differently from an instant on. */

/* Bring `board` up to date; return how many lines changed. */
static int64_t changed_segments(const Layout *layout, const State *state,
                                RateChanges *board, double now)
{
    int64_t lines = 0;
    for (int64_t group = 0; group < layout->groups; group++) {
        int64_t first = layout->slot[group];
        const Fluid *fluid = state->fluid + group;
        if (fluid->active == 0)
            continue;
        double rate = rate_of(layout, state, group);
        double service = service_of(layout, state, group, now);
        for (int64_t place = first; place < first + fluid->active; place++) {
            int64_t edge = state->mark_edge[place];
            if (board->iteration[edge] == state->delivered[edge] && board->rate[edge] == rate)
                continue;
            board->edge[lines] = edge;
            board->served[lines] = service - state->base[edge];
            board->iteration[edge] = state->delivered[edge];
            board->rate[edge] = rate;
            lines++;
        }
    }
    return lines;
}

/* Capacities that change at stated times: events like any other.
 *
 * A change counts after the ends of its instant and before rates are set: what ended then
 * had the old capacity, what goes on or begins gets its rate from the new one. */

/* When a capacity changes next, infinity if none does any more. */
static inline double next_change(const Layout *layout, const State *state)
{
    int64_t place = state->length[CHANGED];
    return place == layout->change_count ? INFINITY : layout->changes[3 * place];
}

/* Let the changes that are due by `instant` hold. Groups with flows over such a port count
 * as touched. */
static void change_capacities(const Layout *layout, State *state, double instant)
{
    while (next_change(layout, state) <= instant) {
        const double *change = layout->changes + 3 * state->length[CHANGED]++;
        int64_t port = (int64_t)change[1];
        double more = change[2] - state->capacity[port];
        state->capacity[port] = change[2];
        if (layout->by_port)
            change_port(state, port, more);
        else if (layout->policy == MAXMIN)
            mark_dirty(state, port, more);
        for (int64_t i = layout->port_start[port]; i < layout->port_start[port + 1]; i++)
            if (state->fluid[layout->port_group[i]].active > 0)
                touch(state, layout->port_group[i]);
    }
}
