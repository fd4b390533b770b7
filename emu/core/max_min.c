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

/* The least level of the ports that `group` crosses except `port`. */
static inline double limit_of(const Layout *layout, const State *state, int64_t group,
                              int64_t port)
{
    double limit = INFINITY;
    FOR_HOPS(j, layout, group)
        if (layout->hop[j] != port)
            limit = smaller(limit, state->levels.level[layout->hop[j]]);
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

/* Find the level of `port` by the levels of others: raised from where all flows would be
 * equal, until no limit is below it. */
static inline void find_target(const Layout *layout, State *state, int64_t port)
{
    Levels *levels = &state->levels;
    double *limit = state->scratch.rate, *flows = state->scratch.weight;
    int64_t count = state->scratch.crowd[port], first = layout->port_start[port];
    for (int64_t i = 0; i < count; i++) {
        int64_t group = state->scratch.crossing[first + i];
        limit[i] = limit_of(layout, state, group, port);
        flows[i] = (double)state->active[group];
    }
    double rising = (double)state->degree[port], left = state->capacity[port];
    double level = rising > 0.0 ? left / rising : INFINITY;
    while (rising > 0.0) {
        double before = rising;
        rising = 0.0;
        left = state->capacity[port];
        for (int64_t i = 0; i < count; i++) {
            bool limited = limit[i] < level;
            left -= limited ? flows[i] * limit[i] : 0.0;
            rising += limited ? 0.0 : flows[i];
        }
        if (rising == before)
            break;
        level = rising > 0.0 ? larger(level, left / rising) : INFINITY;
    }
    levels->target[port] = level;
    levels->left[port] = left;
    levels->rising[port] = (int64_t)rising;
}

/* Count `group` anew over `port`, with another level of port `changed`. */
static inline void limit_anew(const Layout *layout, State *state, int64_t group,
                              int64_t changed, int64_t port, double old)
{
    double before = old, after = state->levels.level[changed];
    FOR_HOPS(j, layout, group) {
        if (layout->hop[j] != port && layout->hop[j] != changed) {
            before = smaller(before, state->levels.level[layout->hop[j]]);
            after = smaller(after, state->levels.level[layout->hop[j]]);
        }
    }
    if (before != after && smaller(before, after) < state->levels.target[port]) {
        count_limited(state, port, -state->active[group], before);
        count_limited(state, port, state->active[group], after);
        queue_dirty(state, port);
    }
}

/* Set the rates over `port`, whose level was `old`, by the limits that its new one was found
 * by; note what depends on it. A rate may be set twice within an event: three flows in a
 * hundred on a dense job. */
static void pass_on(const Layout *layout, State *state, int64_t port, double old, double now)
{
    Levels *levels = &state->levels;
    const double *limit = state->scratch.rate;
    double new = levels->level[port], lower = smaller(old, new);
    for (int64_t i = 0; i < state->scratch.crowd[port]; i++) {
        int64_t group = state->scratch.crossing[layout->port_start[port] + i];
        FOR_HOPS(j, layout, group) {
            int64_t other = layout->hop[j];
            if (lower < levels->target[other] && other != port)
                limit_anew(layout, state, group, port, other, old);
        }
        if (limit[i] > lower)
            set_rate(layout, state, group, smaller(limit[i], new), now);
    }
}

/* Look at the dirty port that may be lowest; settle it if it is. */
static void settle_lowest(const Layout *layout, State *state, double now)
{
    Levels *levels = &state->levels;
    int64_t place = 0;
    double least = levels->bound[0], second = INFINITY;
    for (int64_t i = 1; i < state->length[DIRTY]; i++) {
        if (levels->bound[i] < least) {
            second = least;
            place = i;
            least = levels->bound[i];
        } else {
            second = smaller(second, levels->bound[i]);
        }
    }
    int64_t port = levels->dirty_ports[place];
    double old = levels->level[port];
    find_target(layout, state, port);
    double new = levels->target[port];
    levels->bound[place] = smaller(old, new);
    if (new != old) {
        if (levels->bound[place] > second)
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
    Levels *levels = &state->levels;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        int64_t flows = note_crowd(layout, state, group);
        if (flows == 0)
            continue;
        FOR_HOPS(j, layout, group) {
            int64_t port = layout->hop[j];
            count_limited(state, port, flows, limit_of(layout, state, group, port));
            queue_dirty(state, port);
        }
    }
    while (state->length[DIRTY] > 0)
        settle_lowest(layout, state, now);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->active[group] > 0)
            set_rate(layout, state, group, limit_of(layout, state, group, -1), now);
    }
}
