/* Rates of mrtf and mrtf_exclusive: least remaining time first, SRPT as section VI-B of
 * the DGTP paper has it, and pFabric's ideal schedule (SIGCOMM 2013).
 *
 * A flow gets what those before it leave on its ports. Every port therefore keeps its
 * flows in their order, and an event computes anew what is behind a flow that came, went,
 * or overtook another. Only a flow that is served overtakes: what waits has left what it
 * had. Of 686 flows at once 92 are served, and an event changes 4 rates. */

/* The place of `group` in the order of `port`, behind it if nowhere. */
static int64_t place_in(const Layout *layout, const State *state, int64_t port, int64_t group)
{
    int64_t place = layout->port_start[port];
    int64_t end = place + state->scratch.ranked[port];
    while (place < end && state->scratch.ranking[place] != group)
        place++;
    return place;
}

/* Suspect the rates of the flows over `port` from `place` on. */
static void suspect_from(const Layout *layout, State *state, int64_t port, int64_t place)
{
    Scratch *scratch = &state->scratch;
    int64_t end = layout->port_start[port] + scratch->ranked[port];
    for (int64_t i = place; i < end; i++) {
        int64_t group = scratch->ranking[i];
        if (!scratch->is_suspect[group]) {
            scratch->is_suspect[group] = true;
            scratch->suspect[state->length[SUSPECTS] % layout->groups] = group;
            state->length[SUSPECTS]++;
        }
    }
}

/* Sort the flows over `port`; suspect all from the first that moved. */
static void sort_port(const Layout *layout, State *state, int64_t port)
{
    int64_t *ranking = state->scratch.ranking, first = layout->port_start[port];
    int64_t end = first + state->scratch.ranked[port], moved = end;
    for (int64_t i = first + 1; i < end; i++) {
        int64_t group = ranking[i], hole = i;
        while (hole > first && precedes(layout, state, group, ranking[hole - 1])) {
            ranking[hole] = ranking[hole - 1];
            hole--;
        }
        ranking[hole] = group;
        if (hole < i)
            moved = at_most(moved, hole);
    }
    suspect_from(layout, state, port, moved);
}

/* Take `group` out of the orders of its ports, if it stands there. */
static void leave_orders(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i], place = place_in(layout, state, port, group);
        int64_t last = layout->port_start[port] + scratch->ranked[port] - 1;
        if (place > last)
            continue;
        for (int64_t j = place; j < last; j++)
            scratch->ranking[j] = scratch->ranking[j + 1];
        scratch->ranked[port]--;
        suspect_from(layout, state, port, place);
    }
}

/* Put `group` into the orders of its ports. */
static void join_orders(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i];
        int64_t place = layout->port_start[port] + scratch->ranked[port];
        scratch->ranking[place] = group;
        scratch->ranked[port]++;
        suspect_from(layout, state, port, place);
        sort_port(layout, state, port);
    }
}

/* Sort the flows over the ports of `group` if it precedes the one before it. */
static void overtake(const Layout *layout, State *state, int64_t group)
{
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i], place = place_in(layout, state, port, group);
        if (place > layout->port_start[port]
            && precedes(layout, state, group, state->scratch.ranking[place - 1]))
            sort_port(layout, state, port);
    }
}

/* Set the key of `group`: what it would still need alone, seconds. */
static void set_key(const Layout *layout, State *state, int64_t group, double now)
{
    double time = remaining(layout, state, group, now) / state->scratch.alone[group];
    state->scratch.key[group] = coarse(time);
}

/* Bring the order of every port up to date. */
static void sort_ports(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        leave_orders(layout, state, state->touched[i]);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (!state->is_touched[scratch->order[i]])
            set_key(layout, state, scratch->order[i], now);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (!state->is_touched[scratch->order[i]])
            overtake(layout, state, scratch->order[i]);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->active[group] > 0) {
            note_flow(layout, state, group);
            set_key(layout, state, group, now);
            scratch->rate[group] = 0.0;
            join_orders(layout, state, group);
        }
    }
}

/* The bandwidth that groups before `group` leave it, bytes per second. mrtf_exclusive
 * takes whole ports only. */
static double left_for(const Layout *layout, const State *state, int64_t group)
{
    const Scratch *scratch = &state->scratch;
    double least = INFINITY;
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i], place = layout->port_start[port];
        double left = state->capacity[port];
        while (left > 0.0 && scratch->ranking[place] != group) {
            left -= scratch->rate[scratch->ranking[place]];
            if (left < CRUMB * state->capacity[port])
                left = 0.0;
            place++;
        }
        if (layout->policy == MRTF_EXCLUSIVE && left < state->capacity[port])
            left = 0.0;
        least = smaller(least, left);
    }
    return least;
}

/* Suspect the rates of all behind `group` on its ports. */
static void suspect_behind(const Layout *layout, State *state, int64_t group)
{
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i];
        suspect_from(layout, state, port, place_in(layout, state, port, group) + 1);
    }
}

/* Set the rates of flows that came or were served, or are; keep the last. */
static void set_served_rates(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->active[group] > 0)
            set_rate(layout, state, group, scratch->rate[group], now);
    }
    int64_t listed = state->length[ORDERED];
    state->length[ORDERED] = 0;
    for (int64_t i = 0; i < listed; i++) {
        int64_t group = scratch->order[i];
        scratch->is_ordered[group] = false;
        if (state->active[group] == 0)
            continue;
        set_rate(layout, state, group, scratch->rate[group], now);
        if (scratch->rate[group] > 0.0) {
            scratch->is_ordered[group] = true;
            scratch->order[state->length[ORDERED]++] = group;
        }
    }
}

/* Give each flow what those before it leave. Flows are taken in any order, and again when
 * one before them changed: the first of each port is right at once, then the second. */
static void serve_shortest(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t done = 0;
    state->length[SUSPECTS] = 0;
    sort_ports(layout, state, now);
    while (done < state->length[SUSPECTS]) {
        int64_t group = scratch->suspect[done % layout->groups];
        scratch->is_suspect[group] = false;
        done++;
        if (state->active[group] == 0) /* suspected, and gone since */
            continue;
        double rate = left_for(layout, state, group);
        if (rate != scratch->rate[group]) {
            scratch->rate[group] = rate;
            suspect_behind(layout, state, group);
        }
        if (rate > 0.0 && !scratch->is_ordered[group]) {
            scratch->is_ordered[group] = true;
            scratch->order[state->length[ORDERED]++] = group;
        }
    }
    set_served_rates(layout, state, now);
}
