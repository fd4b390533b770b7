/* Sincronia's and Aalo's orders of waves, and the rates that an order leads to.
 *
 * Sincronia (SIGCOMM 2018), Algorithm 1, on the bytes that are left: of the port that needs
 * longest, the coflow that weighs least for what it has there goes last, and the others
 * there weigh less by their part of it; then again without that coflow. All weigh 1 at
 * first. Flows take what is left of their ports in that order.
 *
 * Aalo (SIGCOMM 2015) knows no sizes: a coflow is in a queue by the bytes that it has sent,
 * the first up to 10 MB, each of the others up to ten times as many. It goes to the next
 * queue at the moment it has sent so many, which is an event. Queues go in their order, coflows of a queue as they came, and the flows of one share equally what is left.
 * What that leaves over goes to flows in the same order. */

/* Weights below this are 0: what rounding left of a weight of 1. */
static const double NO_WEIGHT = 1e-9;
static const double FIRST_QUEUE = 1e7; /* bytes; queues grow tenfold: Aalo, section 5.3 */
static const int64_t QUEUES = 10;

/* Note what `port` needs for what is left there, seconds: 0 where it is cut. */
static inline void note_need(State *state, int64_t port)
{
    bool is_cut = state->capacity[port] == 0.0;
    double needs = is_cut ? 0.0 : coarse(state->scratch.load[port] / state->capacity[port]);
    state->scratch.share[port] = needs;
}

/* Chain what waves have on each port, sum up the bytes, and let all waves weigh 1. */
static void chain_ports(const Layout *layout, State *state)
{
    Waves *waves = &state->scratch.waves;
    for (int64_t port = 0; port < layout->ports; port++)
        state->scratch.load[port] = 0.0;
    FOR_WAVES(w, state) {
        waves->wave[w].key = 1.0;
        FOR_WAVE_PORTS(at, waves, waves->wave + w) {
            at->wave = w;
            at->next = state->scratch.head[at->port];
            state->scratch.head[at->port] = at - waves->port;
            state->scratch.load[at->port] += at->load;
        }
    }
    for (int64_t port = 0; port < layout->ports; port++)
        note_need(state, port);
}

/* The port that needs longest for what is left, -1 where none has anything. */
static int64_t fullest_port(const Layout *layout, const State *state)
{
    int64_t fullest = -1;
    double longest = 0.0;
    for (int64_t port = 0; port < layout->ports; port++) {
        if (state->scratch.share[port] > longest) {
            longest = state->scratch.share[port];
            fullest = port;
        }
    }
    return fullest;
}

/* Where the wave that weighs least for what it has on `port` has that, -1 where none has
 * anything. Waves that have a place, whose weight is infinite, leave the chain. */
static int64_t lightest_on(const Layout *layout, State *state, int64_t port)
{
    Waves *waves = &state->scratch.waves;
    int64_t *link = state->scratch.head + port, lightest = -1;
    double least = INFINITY;
    while (*link >= 0) {
        int64_t i = *link;
        WavePort *at = waves->port + i;
        const Wave *wave = waves->wave + at->wave;
        if (isinf(wave->key)) {
            *link = at->next;
            continue;
        }
        link = &at->next;
        if (at->load <= 0.0)
            continue;
        double weighs = coarse(wave->key / at->load);
        bool goes_later = lightest < 0 || weighs < least;
        if (!goes_later && weighs == least)
            goes_later =
                wins_tie(layout, state, waves->wave + waves->port[lightest].wave, wave);
        if (goes_later) {
            least = weighs;
            lightest = i;
        }
    }
    return lightest;
}

/* Let the others on `port` weigh less by their part of what the last one has at `place`. */
static void scale_weights(State *state, int64_t port, int64_t place)
{
    Waves *waves = &state->scratch.waves;
    const WavePort *last = waves->port + place;
    double per_byte = waves->wave[last->wave].key / last->load;
    for (int64_t i = state->scratch.head[port]; i >= 0; i = waves->port[i].next) {
        Wave *wave = waves->wave + waves->port[i].wave;
        wave->key -= per_byte * waves->port[i].load;
        if (wave->key < NO_WEIGHT)
            wave->key = 0.0;
    }
}

/* The wave that goes last of the first `left` in order, where no port needs anything. */
static int64_t last_by_ties(const Layout *layout, const State *state, int64_t left)
{
    const int64_t *order = state->scratch.order;
    const Wave *wave = state->scratch.waves.wave;
    int64_t last = order[0];
    for (int64_t i = 1; i < left; i++)
        if (wins_tie(layout, state, wave + last, wave + order[i]))
            last = order[i];
    return last;
}

/* The wave that goes last of the first `left` in order, -1 where the fullest port has
 * nothing but what rounding left of a sum. */
static int64_t choose_last(const Layout *layout, State *state, int64_t left)
{
    int64_t port = fullest_port(layout, state);
    if (port < 0)
        return last_by_ties(layout, state, left);
    int64_t lightest = lightest_on(layout, state, port);
    if (lightest < 0) {
        state->scratch.load[port] = 0.0;
        note_need(state, port);
        return -1;
    }
    scale_weights(state, port, lightest);
    return state->scratch.waves.port[lightest].wave;
}

/* Sincronia's order. */
static void order_last_first(const Layout *layout, State *state)
{
    Waves *waves = &state->scratch.waves;
    int64_t *order = state->scratch.order, left = state->length[ORDERED];
    chain_ports(layout, state);
    while (left > 0) {
        int64_t last = choose_last(layout, state, left), place = 0;
        if (last < 0)
            continue;
        while (order[place] != last)
            place++;
        waves->wave[last].key = INFINITY;
        FOR_WAVE_PORTS(at, waves, waves->wave + last) {
            state->scratch.load[at->port] -= at->load;
            note_need(state, at->port);
        }
        order[place] = order[--left];
        order[left] = last;
    }
    for (int64_t port = 0; port < layout->ports; port++)
        state->scratch.head[port] = -1;
}

/* Put a wave into its queue, by what it has sent. */
static void choose_queue(const State *state, Wave *wave, double now)
{
    const Waves *waves = &state->scratch.waves;
    double sent = wave->carried, most = FIRST_QUEUE;
    FOR_ALIVE(group, waves, wave)
        sent += waves->volume[group] - remaining(state->fluid + group, now);
    wave->sent = coarse(sent);
    for (wave->key = 0.0; wave->key < (double)(QUEUES - 1) && wave->sent >= most; most *= 10.0)
        wave->key += 1.0;
    wave->queue_end = wave->key < (double)(QUEUES - 1) ? most : INFINITY;
}

/* When a wave leaves its queue at the rates of now, infinity if it does not. Later than this
 * instant: what rounding leaves of a queue would else hold up time. */
static double leaves_queue(const State *state, const Wave *wave, double now)
{
    const Waves *waves = &state->scratch.waves;
    double speed = 0.0;
    FOR_ALIVE(group, waves, wave)
        speed += state->fluid[group].rate;
    if (speed == 0.0)
        return INFINITY;
    return larger(now + (wave->queue_end - wave->sent) / speed, now * (1.0 + 4.0 * TIE));
}

/* Note when the first wave leaves its queue. */
static void note_demotion(State *state, double now)
{
    state->demotion = INFINITY;
    FOR_WAVES(w, state)
        state->demotion = smaller(state->demotion,
                                  leaves_queue(state, state->scratch.waves.wave + w, now));
}

/* Have rates set anew where a wave leaves its queue by `instant`: a flow of one that goes on
 * counts as touched. */
static void change_queues(State *state, double instant)
{
    const Waves *waves = &state->scratch.waves;
    if (state->demotion > instant)
        return;
    state->demotion = INFINITY;
    FOR_WAVES(w, state)
        FOR_ALIVE(group, waves, waves->wave + w)
            if (state->fluid[group].active > 0) {
                touch(state, group);
                return;
            }
}

/* Aalo: let the flows of a wave share equally what is left of their ports. */
static void share_wave(const Layout *layout, State *state, Wave *wave)
{
    Waves *waves = &state->scratch.waves;
    FOR_WAVE_PORTS(at, waves, wave) {
        at->share = at->flows > 0 ? state->scratch.residual[at->port] / (double)at->flows : 0.0;
        at->base = 0.0;
    }
    wave->fresh = true;
    FOR_ALIVE(group, waves, wave) {
        double rate = INFINITY;
        FOR_HOPS(hop, layout, group)
            rate = smaller(rate, waves->port[waves->at[hop]].share);
        state->scratch.rate[group] = 0.0;
        set_base(layout, state, group, rate);
        take(layout, state, group, rate);
    }
}

/* Sort the waves by the rule. */
static void order_waves(const Layout *layout, State *state, double now)
{
    Waves *waves = &state->scratch.waves;
    FOR_WAVES(w, state) {
        if (layout->policy == AALO)
            choose_queue(state, waves->wave + w, now);
        else
            weigh_wave(layout, state, waves->wave + w, now);
    }
    if (layout->policy == SINCRONIA)
        order_last_first(layout, state);
    else
        sort_waves(layout, state);
}

/* Set the rates of all waves: in their order each its own, then what is left. */
static void serve_waves(const Layout *layout, State *state, double now)
{
    Waves *waves = &state->scratch.waves;
    change_waves(layout, state, now);
    hang_extras(state);
    empty_ports(layout, state);
    order_waves(layout, state, now);
    FOR_WAVES(w, state) {
        if (layout->policy == AALO)
            share_wave(layout, state, waves->wave + w);
        else
            allocate_wave(layout, state, waves->wave + w, now);
    }
    FOR_WAVES(w, state) {
        Wave *wave = waves->wave + w;
        fill_wave(layout, state, wave, now);
        for (int64_t group = wave->extra; group >= 0; group = waves->next[group])
            if (!waves->has_more[group])
                set_rate(state, group, state->scratch.rate[group], now);
        wave->fresh = false;
    }
    if (layout->policy == AALO)
        note_demotion(state, now);
}
