/* Rates of sebf_madd (Varys, SIGCOMM 2014): the coflow with the smallest bottleneck first,
 * its flows end together, and what is left goes to flows in that order. Other orders of the
 * same waves are in wave_order.c.
 *
 * A wave is the active flows of one coflow to one iteration. A coflow with a name may have
 * 20,000 among hundreds of ports. The ports of its wave know how many bytes are left and how
 * many go, so gamma and rates are a matter of ports. MADD lets all flows of a wave end
 * together: as long as that is when it was to be they keep their rates, and only those few
 * are looked at that took what was left of two ports. Of 27,500 flows that are active at
 * once on the Facebook trace an event sets 170. What is kept is wrong by rounding, and
 * counted anew where an end is off by more than an instant. A wave without a name is counted
 * whenever something of it was sent. */

/* Flows of a wave without a name that are counted one by one whenever some are sent. */
enum { FEW = 32 };
/* Waves end when they were to, as a share of the time. */
static const double ON_TIME = 1e-12;

/* Bring a wave to an end: its flows are counted elsewhere from now on. */
static void dissolve(Waves *waves, int64_t coflow, int64_t first)
{
    for (int64_t w = first; w < waves->built[coflow]; w = waves->wave[w].end) {
        if (waves->wave[w].alive > 0)
            FOR_ALIVE(group, waves, waves->wave + w) {
                waves->came[group] = waves->wave[w].came;
                waves->carried[group] = waves->wave[w].carried;
            }
        waves->wave[w].alive = 0;
    }
    waves->built[coflow] = first;
}

/* Put the active flows of `coflow` into waves->member, by iteration, then rank, as its
 * edges are; return where they end. */
static int64_t muster(const Layout *layout, State *state, int64_t coflow)
{
    Waves *waves = &state->scratch.waves;
    int64_t first = layout->coflow_start[coflow], end = first;
    for (int64_t i = first; i < layout->coflow_start[coflow + 1]; i++) {
        int64_t group = layout->group[layout->coflow_edge[i]], hole = end;
        if (group < 0 || state->fluid[group].active == 0)
            continue;
        int64_t turn = state->scratch.turn[group];
        while (hole > first && state->scratch.turn[waves->member[hole - 1]] > turn) {
            waves->member[hole] = waves->member[hole - 1];
            hole--;
        }
        waves->member[hole] = group;
        end++;
    }
    return end;
}

/* Count the ports of wave `w`, whose members are known, from `port` on; return their end. */
static int64_t count_ports(const Layout *layout, State *state, int64_t w, int64_t port)
{
    Waves *waves = &state->scratch.waves;
    Wave *wave = waves->wave + w;
    wave->port_first = wave->port_end = port;
    for (int64_t i = wave->first; i < wave->end; i++) {
        int64_t group = waves->member[i];
        int64_t from = layout->hop[layout->hop_start[group]];
        int64_t to = layout->hop[layout->hop_start[group + 1] - 1];
        waves->place[group] = i;
        waves->wave_of[group] = w;
        waves->from[i] = from;
        waves->to[i] = to;
        FOR_HOPS(hop, layout, group) {
            int64_t *slot = state->scratch.head + layout->hop[hop];
            if (*slot < 0) {
                *slot = wave->port_end++;
                waves->port[*slot] = (WavePort){.port = layout->hop[hop]};
            }
            waves->at[hop] = *slot;
            waves->port[*slot].flows++;
        }
    }
    for (int64_t i = wave->end - 1; i >= wave->first; i--) {
        int64_t group = waves->member[i];
        bool ends = i + 1 == wave->end || waves->to[i + 1] != waves->to[i];
        waves->run_end[i] = ends ? i + 1 : waves->run_end[i + 1];
        waves->port[waves->at[layout->hop_start[group]]].sends = true;
        waves->port[waves->at[layout->hop_start[group + 1] - 1]].receives = true;
    }
    wave->common = -1;
    FOR_WAVE_PORTS(at, waves, wave) {
        state->scratch.head[at->port] = -1;
        if (at->flows == wave->alive)
            wave->common = at->port;
    }
    set_ports(waves, wave);
    return wave->port_end;
}

/* Make the waves of `coflow` anew, and list them. */
static void build_waves(const Layout *layout, State *state, int64_t coflow)
{
    Waves *waves = &state->scratch.waves;
    int64_t first = layout->coflow_start[coflow], port = waves->port_start[coflow];
    dissolve(waves, coflow, first);
    int64_t end = muster(layout, state, coflow);
    waves->built[coflow] = end;
    while (first < end) {
        int64_t last = first, turn = state->scratch.turn[waves->member[first]];
        while (last < end && state->scratch.turn[waves->member[last]] == turn)
            last++;
        Wave *wave = waves->wave + first;
        bool listed = wave->listed;
        *wave = (Wave){.first = first, .end = last, .alive = last - first, .coflow = coflow,
                       .turn = turn, .extra = -1, .ends = INFINITY, .came = INFINITY,
                       .fresh = true, .is_new = true, .listed = true};
        for (int64_t i = first; i < last; i++) {
            wave->came = smaller(wave->came, waves->came[waves->member[i]]);
            wave->carried = larger(wave->carried, waves->carried[waves->member[i]]);
        }
        if (!listed)
            state->scratch.order[state->length[ORDERED]++] = first;
        port = count_ports(layout, state, first, port);
        first = last;
    }
}

/* Take a flow that has ended out of its wave. */
static void leave_wave(const Layout *layout, State *state, int64_t group)
{
    Waves *waves = &state->scratch.waves;
    Wave *wave = waves->wave + waves->wave_of[group];
    waves->member[waves->place[group]] = -1;
    waves->place[group] = -1;
    wave->alive--;
    wave->carried += waves->volume[group];
    while (wave->alive > 0 && waves->member[wave->first] < 0)
        wave->first++;
    FOR_HOPS(hop, layout, group) {
        WavePort *at = waves->port + waves->at[hop];
        at->flows--;
        at->base = at->flows > 0 ? at->base - state->scratch.rate[group] : 0.0;
        at->load = at->flows > 0 ? at->load : 0.0;
        if (at->flows == 0)
            leave_port(waves, wave, at->port);
    }
}

/* Let a group that was touched leave its wave where that flow has ended, and note the flow
 * that it has now. */
static void note_change(const Layout *layout, State *state, int64_t group, double now)
{
    Waves *waves = &state->scratch.waves;
    bool goes = state->fluid[group].active > 0;
    int64_t turn = state->scratch.turn[group];
    if (goes)
        note_flow(layout, state, group);
    if (waves->place[group] >= 0 && (!goes || state->scratch.turn[group] != turn))
        leave_wave(layout, state, group);
    if (!goes || waves->place[group] >= 0)
        return;
    waves->volume[group] = state->fluid[group].mark;
    waves->came[group] = layout->policy == AALO ? coarse(now) : 0.0;
    waves->carried[group] = 0.0;
}

/* Let waves follow from what came and went. */
static void change_waves(const Layout *layout, State *state, double now)
{
    Waves *waves = &state->scratch.waves;
    bool *is_built = state->scratch.coflows.is_chained;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        note_change(layout, state, state->touched[i], now);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        int64_t coflow = layout->coflow[flow_edge(layout, state, group)];
        const Wave *wave = waves->wave + waves->wave_of[group];
        bool thin = 2 * wave->alive < wave->end - wave->first && wave->alive > 0;
        if (is_built[coflow] || (state->fluid[group].active == 0 && !thin))
            continue;
        is_built[coflow] = true;
        build_waves(layout, state, coflow);
    }
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        is_built[layout->coflow[flow_edge(layout, state, state->touched[i])]] = false;
    int64_t kept = 0;
    FOR_WAVES(w, state) {
        waves->wave[w].listed = waves->wave[w].alive > 0;
        if (waves->wave[w].listed)
            state->scratch.order[kept++] = w;
    }
    state->length[ORDERED] = kept;
}

/* Count the bytes that are left of a wave, flow by flow. */
static void count_wave(const Layout *layout, State *state, Wave *wave, double now)
{
    Waves *waves = &state->scratch.waves;
    FOR_WAVE_PORTS(at, waves, wave)
        at->load = 0.0;
    FOR_ALIVE(group, waves, wave) {
        double left = remaining(state->fluid + group, now);
        state->scratch.coflows.left[group] = left;
        FOR_HOPS(hop, layout, group)
            waves->port[waves->at[hop]].load += left;
    }
}

/* Count what is left of a wave, by what was sent of it. False where that is as it was. */
static bool count_down(const Layout *layout, State *state, Wave *wave, double now)
{
    Waves *waves = &state->scratch.waves;
    double since = wave->since;
    wave->since = now;
    if (!wave->fresh && !wave->sends)
        return false;
    wave->fresh |= wave->coflow < layout->tasks && wave->end - wave->first <= FEW;
    if (wave->fresh) {
        count_wave(layout, state, wave, now);
        return true;
    }
    FOR_WAVE_PORTS(at, waves, wave)
        at->load = larger(at->load - at->sent * (now - since), 0.0);
    return true;
}

/* Set the key of a wave that has sent something: its gamma. */
static void weigh_wave(State *state, Wave *wave)
{
    double gamma = 0.0;
    FOR_WAVE_PORTS(at, &state->scratch.waves, wave)
        if (state->capacity[at->port] > 0.0)
            gamma = larger(gamma, at->load / state->capacity[at->port]);
    wave->key = coarse(gamma);
}

/* True where one wave goes before the other, if their keys are the same. */
static bool wins_tie(const Layout *layout, const State *state, const Wave *one,
                     const Wave *other)
{
    const int64_t *member = state->scratch.waves.member;
    if (one->came != other->came)
        return one->came < other->came;
    if (one->turn != other->turn)
        return one->turn < other->turn;
    return layout->rank[flow_edge(layout, state, member[one->first])]
           < layout->rank[flow_edge(layout, state, member[other->first])];
}

static bool goes_first(const Layout *layout, const State *state, const Wave *one,
                       const Wave *other)
{
    if (one->key != other->key)
        return one->key < other->key;
    return wins_tie(layout, state, one, other);
}

static void sort_waves(const Layout *layout, State *state)
{
    int64_t *order = state->scratch.order;
    const Wave *wave = state->scratch.waves.wave;
    for (int64_t i = 1; i < state->length[ORDERED]; i++) {
        int64_t w = order[i], hole = i;
        while (hole > 0 && goes_first(layout, state, wave + w, wave + order[hole - 1])) {
            order[hole] = order[hole - 1];
            hole--;
        }
        order[hole] = w;
    }
}

/* The seconds that a wave needs on its fullest port, of what is left there. */
static double longest_on_port(const State *state, const Wave *wave)
{
    double longest = 0.0;
    FOR_WAVE_PORTS(at, &state->scratch.waves, wave)
        if (at->flows > 0)
            longest = larger(longest, at->load / state->scratch.residual[at->port]);
    return longest;
}

/* Let a flow have `rate` by MADD. */
static inline void set_base(const Layout *layout, State *state, int64_t group, double rate)
{
    Waves *waves = &state->scratch.waves;
    FOR_HOPS(hop, layout, group)
        waves->port[waves->at[hop]].base += rate - state->scratch.rate[group];
    state->scratch.rate[group] = rate;
}

/* Leave a wave without a part, as it was: what its flows had, others left. */
static void keep_waiting(Waves *waves, Wave *wave)
{
    if (wave->sends)
        FOR_WAVE_PORTS(at, waves, wave)
            at->sent = at->base;
    wave->sends = false;
    wave->fresh = false;
}

/* MADD: let all flows of a wave end together. Where that is when they were to, those that
 * had more than their part need less from now on, and no other changes. */
static void allocate_wave(const Layout *layout, State *state, Wave *wave, double now)
{
    Waves *waves = &state->scratch.waves;
    bool held_up = is_held_up(waves, wave);
    if (held_up && !wave->is_new && wave->ends == INFINITY) {
        keep_waiting(waves, wave);
        return;
    }
    double longest = held_up ? INFINITY : longest_on_port(state, wave);
    double ends = now + longest;
    bool in_time = ends == wave->ends || fabs(ends - wave->ends) <= ON_TIME * now;
    if (wave->fresh || !in_time) {
        if (!wave->fresh && !held_up) {
            count_wave(layout, state, wave, now);
            longest = longest_on_port(state, wave);
        }
        wave->ends = now + longest;
        wave->fresh = true;
        FOR_WAVE_PORTS(at, waves, wave)
            at->base = 0.0;
        FOR_ALIVE(group, waves, wave) {
            state->scratch.rate[group] = 0.0;
            if (held_up)
                continue;
            set_base(layout, state, group, state->scratch.coflows.left[group] / longest);
            take_of_ports(layout, state, group, state->scratch.rate[group]);
        }
    } else if (!held_up) {
        for (int64_t group = wave->extra; group >= 0; group = waves->next[group])
            set_base(layout, state, group,
                     remaining(state->fluid + group, now) / (wave->ends - now));
        FOR_WAVE_PORTS(at, waves, wave)
            take_of_port(state, at->port, at->base);
    }
    FOR_WAVE_PORTS(at, waves, wave)
        at->sent = at->base;
    wave->sends = !held_up;
}

/* Give the flows of a wave no part of their own: sincronia's have what is left alone. */
static void clear_wave(State *state, Wave *wave)
{
    Waves *waves = &state->scratch.waves;
    if (wave->is_new)
        FOR_ALIVE(group, waves, wave)
            state->scratch.rate[group] = 0.0;
    wave->fresh = wave->is_new; /* whoever had a rate before is known by name */
    if (wave->sends)
        FOR_WAVE_PORTS(at, waves, wave)
            at->sent = 0.0;
    wave->sends = false;
}

/* Give `more` to a flow beside its part, and note that it has more. */
static void add_rest(const Layout *layout, State *state, Wave *wave, int64_t group, double more,
                     double now)
{
    Waves *waves = &state->scratch.waves;
    take_of_ports(layout, state, group, more);
    FOR_HOPS(hop, layout, group)
        waves->port[waves->at[hop]].sent += more;
    wave->sends = true;
    waves->extra[waves->extras++] = group;
    waves->has_more[group] = true;
    set_rate(state, group, state->scratch.rate[group] + more, now);
}

/* Give the flows of a wave what is left on their ports. Those to one task stand side by
 * side: where its port is full they are passed over. */
static void fill_wave(const Layout *layout, State *state, Wave *wave, double now)
{
    Waves *waves = &state->scratch.waves;
    const double *residual = state->scratch.residual;
    bool is_blocked = wave->common >= 0 && residual[wave->common] == 0.0;
    if (is_blocked && !wave->fresh)
        return;
    bool can_send = has_open_ports(waves, wave);
    for (int64_t i = wave->first, end; can_send && i < wave->end; i++) {
        end = waves->run_end[i];
        i = residual[waves->to[i]] == 0.0 ? end : i;
        while (i < end && residual[waves->from[i]] == 0.0)
            i++;
        if (i == end) {
            i--;
            continue;
        }
        if (waves->member[i] < 0)
            continue;
        double more = spare(layout, state, waves->member[i]);
        if (more > 0.0)
            add_rest(layout, state, wave, waves->member[i], more, now);
        if (residual[waves->from[i]] == 0.0 || residual[waves->to[i]] == 0.0)
            can_send = has_open_ports(waves, wave);
    }
    if (wave->fresh)
        FOR_ALIVE(group, waves, wave)
            if (!waves->has_more[group])
                set_rate(state, group, state->scratch.rate[group], now);
}

/* Hang flows that had more than their part on their waves. */
static void hang_extras(State *state)
{
    Waves *waves = &state->scratch.waves;
    for (int64_t i = 0; i < waves->extras; i++) {
        int64_t group = waves->extra[i];
        waves->has_more[group] = false;
        if (waves->place[group] < 0)
            continue;
        Wave *wave = waves->wave + waves->wave_of[group];
        waves->next[group] = wave->extra;
        wave->extra = group;
    }
    waves->extras = 0;
}
