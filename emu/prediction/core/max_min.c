/* Max-min fair rates, computed anew only where an event changes them.
 *
 * A port's level is the most that any flow gets there: a flow gets the least level of the
 * ports it crosses. The level follows from what else limits the flows there:
 *
 *     sum over flows of min(limit, level) = capacity,
 *
 * infinite where all limits together leave something of the port. Where this holds at
 * every port, every flow has a bottleneck: a full port where no flow has more. That is
 * max-min fairness (Bertsekas and Gallager, Data Networks, section 6.5).
 *
 * A level depends on lower ones only. So dirty ports are settled in the order of their
 * levels, of the old or the new, whichever is lower, as LPA* (Koenig, Likhachev & Furcy
 * 2004) settles what a changed edge disturbs. What lies below is final then. A port whose
 * level changes makes dirty those above it with which it shares flows. No rounding can
 * make this go round in circles: what a level depends on is strictly below it, in
 * floating point too, and the levels are the same to the last bit whatever came before. */

/* A sum over many events may be wrong by less, as a share of a capacity: a port that is
 * nearer to being full is looked at. */
static const double NEAR_FULL = 1e-6;
/* Limits that are nearer to a level, as a share, may count on either side of it. */
static const double NEAR = 1e-9;

/* The least level of the ports that `group` crosses except `port`. */
static inline double limit_of(const Layout *layout, const State *state, int64_t group,
                              int64_t port)
{
    double limit = INFINITY;
    FOR_PORTS(other, layout, group)
        if (other != port)
            limit = smaller(limit, state->levels.level[other]);
    return limit;
}

/* Count `flows` more (or fewer) over `port` that have `limit` elsewhere. */
static inline void count_limited(State *state, int64_t port, int64_t flows, double limit)
{
    if (limit < state->levels.target[port])
        state->levels.left[port] -= (double)flows * limit;
    else
        state->levels.rising[port] += flows;
}

/* Put `port` among those whose level may have to change.
 *
 * No level below `bound` is possible, whatever limits have passed `target`. Ports that
 * stay far from full, half of those that an event reaches, are not looked at. */
static inline void queue_dirty(State *state, int64_t port)
{
    Levels *levels = &state->levels;
    double bound = levels->left[port] - NEAR_FULL * state->capacity[port];
    if (levels->rising[port] > 0)
        bound /= (double)levels->rising[port];
    else if (bound > 0.0)
        bound = INFINITY;
    bound = smaller(bound, levels->level[port]);
    if (levels->place[port] < 0) {
        if (bound == INFINITY)
            return;
        levels->place[port] = state->length[DIRTY];
        levels->dirty_ports[levels->place[port]] = port;
        state->length[DIRTY]++;
    }
    levels->bound[levels->place[port]] = bound;
}

/* Have rates follow from `more` bytes per second of `port` when set next. */
static void mark_dirty(State *state, int64_t port, double more)
{
    state->levels.left[port] += more;
    queue_dirty(state, port);
}

/* The other port that a group of two crosses, number `ports` for none. */
static inline int64_t port_across(const Layout *layout, int64_t group, int64_t port)
{
    int64_t first = layout->hop_start[group], last = layout->hop_start[group + 1] - 1;
    if (first == last)
        return layout->ports;
    return layout->hop[layout->hop[first] == port ? last : first];
}

/* List `group` over `port` with the flows that it has now, in the order of groups: sums
 * round by order. */
static inline void list_flows(const Layout *layout, State *state, int64_t group, int64_t port,
                              int64_t across)
{
    Crossing *over = state->levels.over + layout->port_start[port];
    int64_t *crowd = state->scratch.crowd + port, flows = state->fluid[group].active, i = 0;
    while (i < *crowd && over[i].group < group)
        i++;
    if (flows == 0) {
        memmove(over + i, over + i + 1, (size_t)(--*crowd - i) * sizeof *over);
        return;
    }
    if (i == *crowd || over[i].group != group)
        memmove(over + i + 1, over + i, (size_t)((*crowd)++ - i) * sizeof *over);
    over[i] = (Crossing){group, across, (double)flows};
}

/* The level of `port` if limits below `guess` hold there and no others; set what those
 * leave of it and the flows that rise, and in `gap` the limits next below and above. */
static inline double level_by(const Layout *layout, State *state, int64_t port, double guess,
                              double gap[2])
{
    const double *limit = state->scratch.rate;
    const Crossing *over = state->levels.over + layout->port_start[port];
    double left = state->capacity[port], rising = 0.0, below = 0.0, above = INFINITY;
    for (int64_t i = 0; i < state->scratch.crowd[port]; i++) {
        bool limited = limit[i] < guess;
        double taken = limited ? limit[i] : 0.0;
        left -= over[i].flows * taken;
        rising += limited ? 0.0 : over[i].flows;
        below = larger(below, taken);
        above = smaller(above, larger(limit[i], limited ? INFINITY : 0.0));
    }
    gap[0] = below;
    gap[1] = above;
    state->levels.left[port] = left;
    state->levels.rising[port] = (int64_t)rising;
    return rising > 0.0 ? left / rising : INFINITY;
}

/* True where only one level of `port` is possible: the limits below the guess give `level`,
 * and none lies between the two or near. */
static inline bool is_certain(const State *state, int64_t port, const double gap[2],
                              double level)
{
    if (level == INFINITY)
        return state->levels.left[port] > NEAR * state->capacity[port];
    return gap[0] <= level * (1.0 - NEAR) && gap[1] >= level * (1.0 + NEAR);
}

/* Find the level of `port` by the levels of others. Mostly the limits below it are those of
 * last time. Else it is raised from where all flows would be equal, until no limit is below
 * it. */
static inline void find_target(const Layout *layout, State *state, int64_t port)
{
    Levels *levels = &state->levels;
    const Crossing *over = levels->over + layout->port_start[port];
    double *limit = state->scratch.rate;
    for (int64_t i = 0; i < state->scratch.crowd[port]; i++)
        limit[i] = levels->pairs ? levels->level[over[i].across]
                                 : limit_of(layout, state, over[i].group, port);
    double gap[2], level = level_by(layout, state, port, levels->target[port], gap);
    if (!is_certain(state, port, gap, level)) {
        int64_t before = -1;
        levels->left[port] = state->capacity[port];
        levels->rising[port] = state->degree[port];
        level = state->degree[port] > 0 ? state->capacity[port] / (double)state->degree[port]
                                        : INFINITY;
        while (levels->rising[port] != before && levels->rising[port] > 0) {
            before = levels->rising[port];
            level = larger(level, level_by(layout, state, port, level, gap));
        }
    }
    levels->target[port] = level;
}

/* Count `flows` anew over `port` whose limit elsewhere was `before` and is `after`. */
static inline void limit_anew(State *state, int64_t port, int64_t flows, double before,
                              double after)
{
    if (before != after && smaller(before, after) < state->levels.target[port]) {
        count_limited(state, port, -flows, before);
        count_limited(state, port, flows, after);
        queue_dirty(state, port);
    }
}

/* Count `group` anew over its ports, with another level of port `changed`. */
static void limit_everywhere(const Layout *layout, State *state, int64_t group,
                             int64_t changed, double old)
{
    const double *level = state->levels.level;
    FOR_HOPS(i, layout, group) {
        double before = old, after = level[changed];
        FOR_HOPS(j, layout, group) {
            if (j != i && layout->hop[j] != changed) {
                before = smaller(before, level[layout->hop[j]]);
                after = smaller(after, level[layout->hop[j]]);
            }
        }
        if (layout->hop[i] != changed)
            limit_anew(state, layout->hop[i], state->fluid[group].active, before, after);
    }
}

/* Set the rates over `port`, whose level was `old`, by the limits that its new one was found
 * by; note what depends on it. A rate may be set twice within an event: three flows in a
 * hundred on a dense job. */
static void pass_on(const Layout *layout, State *state, int64_t port, double old, double now)
{
    Levels *levels = &state->levels;
    const double *limit = state->scratch.rate;
    const Crossing *over = levels->over + layout->port_start[port];
    double new = levels->level[port], lower = smaller(old, new);
    int64_t felt = 0;
    for (int64_t i = 0; i < state->scratch.crowd[port]; i++) { /* without a branch */
        levels->felt[felt] = i;
        __builtin_prefetch(state->fluid + over[i].group, 1);
        felt += (limit[i] > lower) | (lower < levels->target[over[i].across]) | !levels->pairs;
    }
    for (int64_t k = 0; k < felt; k++) {
        int64_t i = levels->felt[k], group = over[i].group;
        if (levels->pairs)
            limit_anew(state, over[i].across, (int64_t)over[i].flows, old, new);
        else
            limit_everywhere(layout, state, group, port, old);
        if (limit[i] > lower)
            set_rate(state, group, smaller(limit[i], new), now);
    }
}

/* Look at the dirty port that may be lowest; settle it if it is. */
static void settle_lowest(const Layout *layout, State *state, double now)
{
    Levels *levels = &state->levels;
    int64_t place = 0;
    double least = least_of(levels->bound, state->length[DIRTY]);
    while (levels->bound[place] != least)
        place++;
    int64_t port = levels->dirty_ports[place];
    double old = levels->level[port];
    find_target(layout, state, port);
    double new = levels->target[port];
    levels->bound[place] = smaller(old, new);
    if (new != old) {
        if (levels->bound[place] > least
            && levels->bound[place] > least_of(levels->bound, state->length[DIRTY]))
            return;
        levels->level[port] = new;
        pass_on(layout, state, port, old, now);
    }
    state->length[DIRTY]--;
    int64_t last = levels->dirty_ports[state->length[DIRTY]];
    levels->dirty_ports[place] = last;
    levels->bound[place] = levels->bound[state->length[DIRTY]];
    levels->place[last] = place;
    levels->place[port] = -1;
}

/* Set the max-min fair rate of every group where it has changed. */
static void share_max_min(const Layout *layout, State *state, double now)
{
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        int64_t flows = state->fluid[group].active - state->scratch.noted[group];
        if (flows == 0)
            continue;
        state->scratch.noted[group] += flows;
        FOR_PORTS(port, layout, group) {
            int64_t across = port_across(layout, group, port);
            count_limited(state, port, flows,
                          state->levels.pairs ? state->levels.level[across]
                                              : limit_of(layout, state, group, port));
            list_flows(layout, state, group, port, across);
            queue_dirty(state, port);
        }
    }
    while (state->length[DIRTY] > 0)
        settle_lowest(layout, state, now);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->fluid[group].active > 0)
            set_rate(state, group, limit_of(layout, state, group, -1), now);
    }
}
