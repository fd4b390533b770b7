/* Aalo's order of waves, and the rates that an order leads to.
 *
 * Aalo (SIGCOMM 2015) knows no sizes: a coflow is in a queue by the bytes that it has sent,
 * the first up to 10 MB, each of the others up to ten times as many. It goes to the next
 * queue at the moment it has sent so many, which is an event. Queues go in their order, coflows of a queue as they came, and the flows of one share equally what is left.
 * What that leaves over goes to flows in the same order. */

static const double FIRST_QUEUE = 1e7; /* bytes; queues grow tenfold: Aalo, section 5.3 */
static const int64_t QUEUES = 10;

/* Put a wave into its queue, by what it has sent: one that has sent nothing stays there. */
static void choose_queue(const State *state, Wave *wave, double now)
{
    const Waves *waves = &state->scratch.waves;
    if (!wave->sends && !wave->is_new)
        return;
    double sent = wave->carried, most = FIRST_QUEUE;
    FOR_ALIVE(group, waves, wave)
        sent += waves->volume[group] - remaining(state->fluid + group, now);
    wave->sent = sent;
    sent = coarse(sent);
    for (wave->key = 0.0; wave->key < (double)(QUEUES - 1) && sent >= most; most *= 10.0)
        wave->key += 1.0;
    wave->queue_end = wave->key < (double)(QUEUES - 1) ? most : INFINITY;
}

/* When a wave leaves its queue at the rates of now, infinity if it does not. Later than this
 * instant: what rounding leaves of a queue would else hold up time. */
static double leaves_queue(const State *state, const Wave *wave, double now)
{
    const Waves *waves = &state->scratch.waves;
    double speed = 0.0;
    if (!wave->sends)
        return INFINITY;
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

/* Aalo: let the flows of a wave share equally what is left of their ports. A wave that had
 * nothing, and is left nothing, stays as it is. */
static void share_wave(const Layout *layout, State *state, Wave *wave)
{
    Waves *waves = &state->scratch.waves;
    bool is_idle = !wave->sends && !wave->is_new;
    wave->sends = false;
    if (is_idle && !has_open_ports(waves, wave))
        return;
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
        if (rate == 0.0)
            continue;
        wave->sends = true;
        set_base(layout, state, group, rate);
        take_of_ports(layout, state, group, rate);
    }
}

/* Sort the waves by the rule. */
static void order_waves(const Layout *layout, State *state, double now)
{
    Waves *waves = &state->scratch.waves;
    FOR_WAVES(w, state) {
        Wave *wave = waves->wave + w;
        if (layout->policy == AALO)
            choose_queue(state, wave, now);
        else if (count_down(layout, state, wave, now) && layout->policy == SEBF_MADD)
            weigh_wave(state, wave);
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
    open_ports(layout, state);
    order_waves(layout, state, now);
    FOR_WAVES(w, state) {
        if (layout->policy == AALO)
            share_wave(layout, state, waves->wave + w);
        else if (layout->policy == SINCRONIA)
            clear_wave(state, waves->wave + w);
        else
            allocate_wave(layout, state, waves->wave + w, now);
    }
    FOR_WAVES(w, state) {
        Wave *wave = waves->wave + w;
        fill_wave(layout, state, wave, now);
        for (int64_t group = wave->extra; group >= 0; group = waves->next[group])
            if (!waves->has_more[group])
                set_rate(state, group, state->scratch.rate[group], now);
        wave->extra = -1;
        wave->fresh = wave->is_new = false;
    }
    if (layout->policy == AALO)
        note_demotion(state, now);
}
