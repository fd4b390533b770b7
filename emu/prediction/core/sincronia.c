/* Sincronia's order of waves (SIGCOMM 2018, Algorithm 1), on the bytes that are left.
 *
 * Of the port that needs longest, the coflow that weighs least for what it has there goes
 * last, and the others there weigh less by their part of it; then again without that coflow.
 * All weigh 1 at first. Flows take what is left of their ports in that order.
 *
 * Every wave is placed anew at every event. What waves have on a port therefore stands side
 * by side, in few bytes, and their weights in the order in which they were listed. */

/* Weights below this are 0: what rounding left of a weight of 1. */
static const double NO_WEIGHT = 1e-9;
/* Quotients that differ by more than this share differ to 32 bits as well. */
static const double SURELY_MORE = 1e-9;

/* Note what `port` needs for what is left there, seconds: 0 where it is cut. */
static inline void note_need(State *state, int64_t port)
{
    bool is_cut = state->capacity[port] == 0.0;
    double needs = is_cut ? 0.0 : coarse(state->scratch.load[port] / state->capacity[port]);
    state->scratch.share[port] = needs;
}

/* Note what waves have on each port, sum up the bytes, and let all waves weigh 1. */
static void note_stakes(const Layout *layout, State *state)
{
    Waves *waves = &state->scratch.waves;
    for (int64_t port = 0; port < layout->ports; port++) {
        state->scratch.load[port] = 0.0;
        waves->stakes[port] = 0;
    }
    FOR_WAVES(w, state) {
        waves->listed[w_i] = w;
        waves->weight[w_i] = 1.0;
        FOR_WAVE_PORTS(at, waves, waves->wave + w) {
            if (at->load <= 0.0)
                continue;
            int64_t place = layout->port_start[at->port] + waves->stakes[at->port]++;
            waves->stake[place] = (Stake){.load = at->load, .number = w_i};
            state->scratch.load[at->port] += at->load;
        }
    }
    for (int64_t port = 0; port < layout->ports; port++)
        note_need(state, port);
}

/* The port that needs longest for what is left, the first of equal ones; -1 where none has
 * anything. */
static int64_t fullest_port(const Layout *layout, const State *state)
{
    const double *needs = state->scratch.share;
    double longest = largest_of(needs, layout->ports);
    int64_t port = 0;
    if (longest <= 0.0)
        return -1;
    while (needs[port] < longest)
        port++;
    return port;
}

/* True where one wave goes later than another that weighs as much for what it has. */
static bool ties_later(const Layout *layout, const State *state, int64_t number, int64_t other)
{
    const Waves *waves = &state->scratch.waves;
    const Wave *wave = waves->wave + waves->listed[number];
    return wins_tie(layout, state, waves->wave + waves->listed[other], wave);
}

/* The stake on `port` of the wave that weighs least for it, NULL where none has anything.
 * Stakes of waves that have a place, whose weight is infinite, are dropped. */
static const Stake *lightest_on(const Layout *layout, State *state, int64_t port)
{
    Waves *waves = &state->scratch.waves;
    Stake *stake = waves->stake + layout->port_start[port];
    const Stake *lightest = NULL;
    double least = INFINITY, most = INFINITY;
    int64_t kept = 0;

    for (int64_t i = 0; i < waves->stakes[port]; i++) {
        Stake held = stake[i];
        double weight = waves->weight[held.number];
        if (isinf(weight))
            continue;
        stake[kept++] = held;
        if (weight > most * held.load) /* costs less than a division */
            continue;
        double weighs = coarse(weight / held.load);
        if (weighs < least
            || (weighs == least && ties_later(layout, state, held.number, lightest->number))) {
            least = weighs;
            most = least * (1.0 + SURELY_MORE);
            lightest = stake + kept - 1;
        }
    }
    waves->stakes[port] = kept;
    return lightest;
}

/* Let the others on `port` weigh less by their part of what the last one has there. */
static void scale_weights(const Layout *layout, State *state, int64_t port, const Stake *last)
{
    Waves *waves = &state->scratch.waves;
    const Stake *stake = waves->stake + layout->port_start[port];
    double per_byte = waves->weight[last->number] / last->load;
    for (int64_t i = 0; i < waves->stakes[port]; i++) {
        double *weight = waves->weight + stake[i].number;
        double rest = *weight - per_byte * stake[i].load;
        *weight = rest < NO_WEIGHT ? 0.0 : rest;
    }
}

/* The wave that goes last of those without a place, where no port needs anything. */
static int64_t last_by_ties(const Layout *layout, const State *state)
{
    const double *weight = state->scratch.waves.weight;
    int64_t last = -1;
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (weight[i] < INFINITY && (last < 0 || ties_later(layout, state, i, last)))
            last = i;
    return last;
}

/* The number of the wave that goes last of those without a place, -1 where the fullest port
 * has nothing but what rounding left of a sum. */
static int64_t choose_last(const Layout *layout, State *state)
{
    int64_t port = fullest_port(layout, state);
    if (port < 0)
        return last_by_ties(layout, state);
    const Stake *lightest = lightest_on(layout, state, port);
    if (lightest == NULL) {
        state->scratch.load[port] = 0.0;
        note_need(state, port);
        return -1;
    }
    scale_weights(layout, state, port, lightest);
    return lightest->number;
}

/* Sort the waves, the last one first. */
static void order_last_first(const Layout *layout, State *state)
{
    Waves *waves = &state->scratch.waves;
    note_stakes(layout, state);
    for (int64_t left = state->length[ORDERED]; left > 0;) {
        int64_t last = choose_last(layout, state);
        if (last < 0)
            continue;
        int64_t w = waves->listed[last];
        state->scratch.order[--left] = w;
        waves->weight[last] = INFINITY;
        FOR_WAVE_PORTS(at, waves, waves->wave + w) {
            if (at->load <= 0.0)
                continue;
            state->scratch.load[at->port] -= at->load;
            note_need(state, at->port);
        }
    }
}
