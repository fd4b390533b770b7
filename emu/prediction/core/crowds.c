/* The groups with active flows over every port, listed. */

/* The place of `group` in the list of `port`, behind it if nowhere. */
static int64_t place_in(const Layout *layout, const State *state, int64_t port, int64_t group)
{
    int64_t place = 0;
    const int64_t *crossing = state->scratch.crossing + layout->port_start[port];
    while (place < state->scratch.crowd[port] && crossing[place] != group)
        place++;
    return layout->port_start[port] + place;
}

/* List `group` at its ports, in the order of groups: sums round by order. */
static void join_crowd(const Layout *layout, State *state, int64_t group)
{
    FOR_PORTS(port, layout, group) {
        int64_t *crossing = state->scratch.crossing + layout->port_start[port];
        int64_t count = state->scratch.crowd[port]++, place = count;
        while (place > 0 && crossing[place - 1] > group)
            place--;
        insert_at(crossing, count, place, group);
    }
}

/* Strike `group` from the list of `port`, where it has that place. */
static void strike(const Layout *layout, State *state, int64_t port, int64_t place)
{
    int64_t first = layout->port_start[port], count = state->scratch.crowd[port]--;
    remove_at(state->scratch.crossing + first, count, place - first);
}

/* Bring the lists of its ports up to date with `group`; return how many flows it has more
 * than when that was last done. */
static inline int64_t note_crowd(const Layout *layout, State *state, int64_t group)
{
    int64_t *noted = state->scratch.noted + group, more = state->fluid[group].active - *noted;
    if (more != 0 && *noted == 0)
        join_crowd(layout, state, group);
    else if (more != 0 && state->fluid[group].active == 0)
        FOR_PORTS(port, layout, group)
            strike(layout, state, port, place_in(layout, state, port, group));
    *noted += more;
    return more;
}

static void note_crowds(const Layout *layout, State *state)
{
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        note_crowd(layout, state, state->touched[i]);
}
