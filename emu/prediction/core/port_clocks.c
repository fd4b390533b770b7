/* Max-min where many groups cross every port: clocks of ports, and levels by their order.
 *
 * All groups with one bottleneck have its level as their rate. So a clock per port counts the
 * bytes served to each of them, and a group is kept there by its goal: what the clock will
 * have served when its first flow ends. A level that changes costs one clock, not one per
 * group: with 256 machines an event changes 40 levels, and through them 3,700 groups.
 *
 * Ports stand in the order of their levels. A group is on the clock of the one of its two
 * ports that stands first, so a level depends on ports before it alone, and one sweep in
 * that order settles all. Changes are passed on as differences: sums may be wrong by some
 * 1e-15 of a capacity, and are counted anew in turn. Where a level comes to lie beyond its
 * neighbours', its port is moved, and its groups change clocks (a few: most levels move by
 * less than they lie apart). Small jobs have max_min.c, which is exact to the last bit. */

/* Levels that are nearer to one another, as a share, may stand in either order. */
static const double EQUAL = 1e-13;
/* A level that changes by less, as a share, has not changed. */
static const double ROUNDING = 1e-15;

/* The place of `group` among the hops, where it crosses `port`. */
static inline int64_t hop_at(const Layout *layout, int64_t group, int64_t port)
{
    int64_t hop = layout->hop_start[group];
    return layout->hop[hop] == port ? hop : hop + 1;
}

/* The port whose clock `group` is on; in `across` the other, number `ports` for none. */
static inline int64_t holder_of(const Layout *layout, const State *state, int64_t group,
                                int64_t *across)
{
    const int64_t *rank = state->clocks.rank;
    int64_t first = layout->hop_start[group];
    int64_t port = layout->hop[first];
    *across = layout->ports;
    if (layout->hop_start[group + 1] - first > 1)
        *across = layout->hop[first + 1];
    if (rank[*across] > rank[port])
        return port;
    int64_t holder = *across;
    *across = port;
    return holder;
}

/* Bytes that the clock of `port` has served by `now`. */
static inline double clock_at(const State *state, int64_t port, double now)
{
    const PortClock *clock = state->clocks.clock + port;
    return clock->served + clock->rate * larger(now - clock->since, 0.0);
}

/* Bytes served to each active flow of `group` by `now`. */
static inline double served_by_port(const Layout *layout, const State *state, int64_t group,
                                    double now)
{
    int64_t across, port = holder_of(layout, state, group, &across);
    double goal = state->clocks.goal[state->clocks.seat[hop_at(layout, group, port)]];
    double left = goal - clock_at(state, port, now);
    return larger(state->fluid[group].service, state->fluid[group].mark - left);
}

/* The goals that the clock of `port` reaches by `instant` are not above this. */
static inline double reached_goal(const State *state, int64_t port, double instant)
{
    if (state->clocks.finish[port] > instant)
        return -1.0;
    return larger(clock_at(state, port, instant), state->clocks.clock[port].least);
}

/* True where the first flow of `group`, which has some, ends by `instant`. */
static bool ends_by_port(const Layout *layout, const State *state, int64_t group,
                         double instant)
{
    int64_t across, port = holder_of(layout, state, group, &across);
    int64_t seat = state->clocks.seat[hop_at(layout, group, port)];
    return state->clocks.goal[seat] <= reached_goal(state, port, instant);
}

/* Have the next end on the clock of `port` found anew. */
static inline void note_clock(State *state, int64_t port)
{
    PortClock *clock = state->clocks.clock + port;
    if (!clock->is_noted)
        state->clocks.noted[state->length[CLOCKS]++] = port;
    clock->is_noted = true;
}

/* Have the level of `port` found anew. */
static inline void mark_stale(State *state, int64_t port)
{
    int64_t place = state->clocks.rank[port];
    state->clocks.stale[place] = true;
    state->clocks.first_stale = at_most(state->clocks.first_stale, place);
}

/* Have levels follow from `more` bytes per second of `port`. */
static void change_port(State *state, int64_t port, double more)
{
    state->clocks.left[port] += more;
    mark_stale(state, port);
}

/* Set the goal of a group on the clock of `port`; infinite: its flows come or go. */
static inline void set_goal(State *state, int64_t port, int64_t seat, double goal)
{
    PortClock *clock = state->clocks.clock + port;
    double before = state->clocks.goal[seat];
    if (before < INFINITY && before <= clock->least)
        clock->least = -1.0;
    else
        clock->least = smaller(clock->least, goal);
    state->clocks.goal[seat] = goal;
    note_clock(state, port);
}

/* Stop the clock for `group`, if it is on one, until rates are set. */
static inline void leave_clock(const Layout *layout, State *state, int64_t group, double now)
{
    if (state->scratch.noted[group] == 0)
        return;
    int64_t across, port = holder_of(layout, state, group, &across);
    int64_t seat = state->clocks.seat[hop_at(layout, group, port)];
    if (state->clocks.goal[seat] == INFINITY)
        return;
    state->fluid[group].service = served_by_port(layout, state, group, now);
    set_goal(state, port, seat, INFINITY);
}

/* Have the clock run for the flows of `group` as they are now. */
static inline void join_clock(const Layout *layout, State *state, int64_t group, double now)
{
    const Fluid *fluid = state->fluid + group;
    int64_t across, port = holder_of(layout, state, group, &across);
    int64_t seat = state->clocks.seat[hop_at(layout, group, port)];
    if (state->clocks.goal[seat] < INFINITY)
        return;
    double left = larger(fluid->mark - fluid->service, 0.0);
    set_goal(state, port, seat, clock_at(state, port, now) + left);
}

/* Let two groups over `port` change their seats. */
static inline void swap_seats(const Layout *layout, State *state, int64_t port, int64_t a,
                              int64_t b)
{
    PortClocks *clocks = &state->clocks;
    if (a == b)
        return;
    Seat seat = clocks->over[a];
    int64_t group = clocks->member[a];
    double goal = clocks->goal[a];
    clocks->over[a] = clocks->over[b];
    clocks->member[a] = clocks->member[b];
    clocks->goal[a] = clocks->goal[b];
    clocks->over[b] = seat;
    clocks->member[b] = group;
    clocks->goal[b] = goal;
    clocks->seat[hop_at(layout, clocks->member[a], port)] = a;
    clocks->seat[hop_at(layout, group, port)] = b;
}

/* Move `group` from the clock of one of its ports to that of the other. */
static void change_clock(const Layout *layout, State *state, int64_t group, int64_t from,
                         int64_t to, double now)
{
    PortClocks *clocks = &state->clocks;
    PortClock *old = clocks->clock + from, *new = clocks->clock + to;
    int64_t seat = clocks->seat[hop_at(layout, group, from)];
    int64_t flows = clocks->over[seat].flows;
    double left = clocks->goal[seat] - clock_at(state, from, now);

    set_goal(state, from, seat, INFINITY);
    swap_seats(layout, state, from, seat, layout->port_start[from] + --old->groups);
    clocks->flows[from] -= flows;
    clocks->left[from] -= (double)flows * new->rate;
    mark_stale(state, from);

    seat = clocks->seat[hop_at(layout, group, to)];
    swap_seats(layout, state, to, seat, layout->port_start[to] + new->groups++);
    clocks->flows[to] += flows;
    clocks->left[to] += (double)flows * old->rate;
    mark_stale(state, to);
    seat = clocks->seat[hop_at(layout, group, to)];
    set_goal(state, to, seat, clock_at(state, to, now) + left);
}

/* Give `group` a seat at `port`, with no flows and on no clock. */
static void take_seat(const Layout *layout, State *state, int64_t group, int64_t port,
                      int64_t across)
{
    PortClocks *clocks = &state->clocks;
    int64_t seat = layout->port_start[port] + state->scratch.crowd[port]++;
    clocks->over[seat] = (Seat){.across = (int32_t)across};
    clocks->member[seat] = group;
    clocks->goal[seat] = INFINITY;
    clocks->seat[hop_at(layout, group, port)] = seat;
}

static void give_seat_up(const Layout *layout, State *state, int64_t group, int64_t port)
{
    int64_t seat = state->clocks.seat[hop_at(layout, group, port)];
    int64_t last = layout->port_start[port] + --state->scratch.crowd[port];
    swap_seats(layout, state, port, seat, last);
}

/* Take in how many flows `group` has now. */
static void count_crossings(const Layout *layout, State *state, int64_t group)
{
    PortClocks *clocks = &state->clocks;
    int64_t active = state->fluid[group].active, more = active - state->scratch.noted[group];
    int64_t across, port = holder_of(layout, state, group, &across);
    PortClock *clock = clocks->clock + port;
    if (more == 0)
        return;
    state->scratch.noted[group] = active;
    if (more == active) {
        FOR_PORTS(side, layout, group)
            take_seat(layout, state, group, side, side == port ? across : port);
        int64_t seat = clocks->seat[hop_at(layout, group, port)];
        swap_seats(layout, state, port, seat, layout->port_start[port] + clock->groups++);
    }
    clocks->flows[port] += more;
    clocks->left[across] -= (double)more * clock->rate;
    FOR_PORTS(side, layout, group) {
        clocks->over[clocks->seat[hop_at(layout, group, side)]].flows += (int32_t)more;
        mark_stale(state, side);
    }
    if (active == 0) {
        int64_t seat = clocks->seat[hop_at(layout, group, port)];
        swap_seats(layout, state, port, seat, layout->port_start[port] + --clock->groups);
        FOR_PORTS(side, layout, group)
            give_seat_up(layout, state, group, side);
    }
}

/* What groups on clocks of other ports leave of `port`, bytes per second, summed anew. */
static double left_of(const Layout *layout, const State *state, int64_t port)
{
    const PortClocks *clocks = &state->clocks;
    const Seat *over = clocks->over + layout->port_start[port];
    double left = state->capacity[port];
    for (int64_t i = clocks->clock[port].groups; i < state->scratch.crowd[port]; i++)
        left -= (double)over[i].flows * clocks->clock[over[i].across].rate;
    return left;
}

/* The level of `port` while its groups and the levels before it are those of now. */
static inline double level_of(const State *state, int64_t port)
{
    double left = state->clocks.left[port];
    if (state->clocks.flows[port] > 0)
        return larger(left / (double)state->clocks.flows[port], 0.0);
    return left < -EQUAL * state->capacity[port] ? 0.0 : INFINITY;
}

/* True where `level` of `port` lies between those of its neighbours in the order. */
static inline bool keeps_order(const Layout *layout, const State *state, int64_t port,
                               double level)
{
    const PortClocks *clocks = &state->clocks;
    const double *level_at = state->levels.level;
    int64_t place = clocks->rank[port];
    double slack = 1.0 + clocks->tolerance;
    if (place > 0 && level_at[clocks->order[place - 1]] > level * slack)
        return false;
    return place + 1 == layout->ports || level <= level_at[clocks->order[place + 1]] * slack;
}

/* Find the level of `port` by the levels of all others, raised from where all its flows would
 * be equal until no limit is below it. */
static double find_level(const Layout *layout, const State *state, int64_t port)
{
    const Seat *over = state->clocks.over + layout->port_start[port];
    int64_t rising = state->degree[port], before = -1;
    double level = rising > 0 ? state->capacity[port] / (double)rising : INFINITY;
    while (rising != before && rising > 0) {
        double left = state->capacity[port];
        before = rising;
        rising = state->degree[port];
        for (int64_t i = 0; i < state->scratch.crowd[port]; i++) {
            double limit = state->levels.level[over[i].across];
            left -= limit < level ? (double)over[i].flows * limit : 0.0;
            rising -= limit < level ? over[i].flows : 0;
        }
        level = rising > 0 ? larger(level, left / (double)rising) : INFINITY;
    }
    return level;
}

/* Move `port` to its place in the order, by its new level. */
static void move_port(const Layout *layout, State *state, int64_t port, double level)
{
    PortClocks *clocks = &state->clocks;
    const double *level_at = state->levels.level;
    int64_t place = clocks->rank[port], first = place;
    while (place > 0 && level_at[clocks->order[place - 1]] > level) {
        clocks->order[place] = clocks->order[place - 1];
        clocks->stale[place] = clocks->stale[place - 1];
        clocks->rank[clocks->order[place]] = place;
        place--;
    }
    while (place + 1 < layout->ports && level_at[clocks->order[place + 1]] < level) {
        clocks->order[place] = clocks->order[place + 1];
        clocks->stale[place] = clocks->stale[place + 1];
        clocks->rank[clocks->order[place]] = place;
        place++;
    }
    clocks->order[place] = port;
    clocks->rank[port] = place;
    clocks->stale[place] = false;
    clocks->first_stale = at_most(clocks->first_stale, at_most(first, place));
}

/* Have every group over `port` on the clock of the one of its ports that stands first. */
static void take_sides(const Layout *layout, State *state, int64_t port, double now)
{
    PortClocks *clocks = &state->clocks;
    const int64_t *rank = clocks->rank;
    const Seat *over = clocks->over;
    int64_t first = layout->port_start[port], held = first + clocks->clock[port].groups;
    for (int64_t seat = held - 1; seat >= first; seat--)
        if (rank[over[seat].across] < rank[port])
            change_clock(layout, state, clocks->member[seat], port, over[seat].across, now);
    for (int64_t seat = held; seat < first + state->scratch.crowd[port]; seat++)
        if (rank[over[seat].across] > rank[port])
            change_clock(layout, state, clocks->member[seat], over[seat].across, port, now);
    clocks->left[port] = left_of(layout, state, port);
    clocks->stale[rank[port]] = false;
}

/* Let the clock of `port` go by `rate` from `now` on; pass on what that changes. */
static inline void set_clock_rate(const Layout *layout, State *state, int64_t port,
                                  double rate, double now)
{
    PortClocks *clocks = &state->clocks;
    PortClock *clock = clocks->clock + port;
    double more = rate - clock->rate;
    const Seat *over = clocks->over + layout->port_start[port];
    for (int64_t i = 0; i < clock->groups; i++) {
        int64_t across = over[i].across;
        clocks->left[across] -= (double)over[i].flows * more;
        clocks->stale[clocks->rank[across]] = true;
    }
    clock->served = clock_at(state, port, now);
    clock->since = now;
    clock->rate = rate;
    note_clock(state, port);
}

/* Settle `port`; what stands before it in the order is settled. */
static void settle_port(const Layout *layout, State *state, int64_t port, double now)
{
    PortClocks *clocks = &state->clocks;
    double level = level_of(state, port);
    if (!keeps_order(layout, state, port, level)) {
        move_port(layout, state, port, find_level(layout, state, port));
        take_sides(layout, state, port, now);
        level = level_of(state, port);
    }
    double rate = clocks->flows[port] > 0 ? level : 0.0;
    if (fabs(rate - clocks->clock[port].rate) > ROUNDING * rate)
        set_clock_rate(layout, state, port, rate, now);
    if (rate > 0.0)
        level = clocks->clock[port].rate;
    state->levels.level[port] = level;
}

/* Settle all ports, in their order. */
static void settle_ports(const Layout *layout, State *state, double now)
{
    PortClocks *clocks = &state->clocks;
    int64_t settled = 0;
    clocks->tolerance = EQUAL;
    for (;;) {
        const bool *from = clocks->stale + clocks->first_stale;
        const bool *stale = memchr(from, true, (size_t)(layout->ports - clocks->first_stale));
        if (stale == NULL)
            break;
        int64_t place = stale - clocks->stale;
        clocks->stale[place] = false;
        clocks->first_stale = place + 1;
        settle_port(layout, state, clocks->order[place], now);
        /* Rounding alone can make levels pass one another for ever. */
        if (++settled % (4 * layout->ports) == 0)
            clocks->tolerance *= 2.0;
    }
    clocks->first_stale = layout->ports;
}

/* Find when the next flow ends on every clock that has changed. */
static void find_ends(const Layout *layout, State *state, double now)
{
    PortClocks *clocks = &state->clocks;
    for (int64_t i = 0; i < state->length[CLOCKS]; i++) {
        int64_t port = clocks->noted[i];
        PortClock *clock = clocks->clock + port;
        double *goal = clocks->goal + layout->port_start[port];
        clock->is_noted = false;
        if (clock->least < 0.0) {
            /* Counted from 0 again: rounding is that of the bytes that are left. */
            for (int64_t k = 0; k < clock->groups; k++)
                goal[k] = larger(goal[k] - clock->served, 0.0);
            clock->least = least_of(goal, clock->groups);
            clock->served = 0.0;
        }
        double left = larger(clock->least - clock->served, 0.0);
        double end = clock->rate > 0.0 ? clock->since + left / clock->rate : INFINITY;
        clocks->finish[port] = larger(end, now); /* rounding ends nothing in the past */
    }
    state->length[CLOCKS] = 0;
}

/* Set the max-min fair level of every port where it has changed. */
static void share_by_port(const Layout *layout, State *state, double now)
{
    PortClocks *clocks = &state->clocks;
    int64_t port = clocks->counted++ % layout->ports;
    clocks->left[port] = left_of(layout, state, port);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        count_crossings(layout, state, state->touched[i]);
    settle_ports(layout, state, now);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        if (state->fluid[state->touched[i]].active > 0)
            join_clock(layout, state, state->touched[i], now);
    find_ends(layout, state, now);
}
