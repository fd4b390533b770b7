/* Rates by coflow: the active flows of one name, or to one task, that serve one iteration.
 *
 * OMCoflow (Tan et al., ToN 27(5) 2019) as section VI-B of the DGTP paper describes it:
 * rates within a coflow inversely proportional to the predicted finish time of the flow,
 * supposing that its coflow is alone. Which formula that means is our reading; the
 * variants are ours as well. For SEBF and MADD see waves.c.
 *
 * Coflows are chained anew where a flow came or went: the first flow stands for all. */

#define FOR_MEMBERS(group, scratch, coflow) \
    for (int64_t group = coflow; group >= 0; group = (scratch)->coflows.next[group])

/* Where a finish is predicted, a flow counts at least this share of its volume as left:
 * the last bytes would get all the weight. */
static const double LEAST_LEFT = 0.01;
/* The whole volume counts, as when the flow began. */
static const double WHOLE = 1.0;

/* The bytes that count as left of the only flow of a group, at least a share of all. */
static inline double foreseen(const Fluid *fluid, double now, double least)
{
    return larger(remaining(fluid, now), least * fluid->mark);
}

/* The group with an active flow at `place` of the edges by coflow, or -1. */
static int64_t active_at(const Layout *layout, const State *state, int64_t place)
{
    int64_t group = layout->group[layout->coflow_edge[place]];
    return group >= 0 && state->fluid[group].active > 0 ? group : -1;
}

/* Count the flows of `coflow` over each of its ports, and the bytes left. */
static void count_coflow(const Layout *layout, State *state, int64_t coflow)
{
    Scratch *scratch = &state->scratch;
    FOR_MEMBERS(group, scratch, coflow) {
        FOR_PORTS(port, layout, group) {
            scratch->flows[port] = 0;
            scratch->load[port] = 0.0;
        }
    }
    FOR_MEMBERS(group, scratch, coflow) {
        FOR_PORTS(port, layout, group) {
            scratch->flows[port] += 1;
            scratch->load[port] += scratch->coflows.left[group];
        }
    }
}

/* Set the rates of the flows of `coflow` if equal shares were all that counts. */
static void set_fair_rates(const Layout *layout, State *state, int64_t coflow)
{
    Scratch *scratch = &state->scratch;
    count_coflow(layout, state, coflow);
    FOR_MEMBERS(group, scratch, coflow) {
        double rate = INFINITY;
        FOR_PORTS(port, layout, group) {
            rate = smaller(rate, state->capacity[port] / (double)scratch->flows[port]);
        }
        scratch->fair[group] = rate;
    }
}

/* Chain the flows to the iteration that `first` serves: they stand behind it, by rank. */
static void chain_turn(const Layout *layout, State *state, int64_t first, int64_t i,
                       int64_t end)
{
    Scratch *scratch = &state->scratch;
    int64_t *link = scratch->coflows.next + first;
    for (int64_t j = i + 1; j < end; j++) {
        int64_t group = active_at(layout, state, j);
        if (group < 0 || scratch->turn[group] != scratch->turn[first])
            continue;
        *link = group;
        link = scratch->coflows.next + group;
    }
    *link = -1;
}

/* Chain the active flows of each iteration of `coflow`. */
static void chain(const Layout *layout, State *state, int64_t coflow_of)
{
    Scratch *scratch = &state->scratch;
    int64_t first = layout->coflow_start[coflow_of], end = layout->coflow_start[coflow_of + 1];
    for (int64_t i = first; i < end; i++) {
        int64_t group = active_at(layout, state, i);
        if (group >= 0)
            scratch->coflows.first[group] = -1;
    }
    for (int64_t i = first; i < end; i++) {
        int64_t coflow = active_at(layout, state, i);
        if (coflow < 0 || scratch->coflows.first[coflow] >= 0)
            continue;
        chain_turn(layout, state, coflow, i, end);
        FOR_MEMBERS(group, scratch, coflow)
            scratch->coflows.first[group] = coflow;
        set_fair_rates(layout, state, coflow);
    }
}

/* Chain every coflow of which a flow came or went. */
static void chain_coflows(const Layout *layout, State *state)
{
    bool *chained = state->scratch.coflows.is_chained;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t coflow = layout->coflow[flow_edge(layout, state, state->touched[i])];
        if (!chained[coflow]) {
            chained[coflow] = true;
            chain(layout, state, coflow);
        }
    }
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        chained[layout->coflow[flow_edge(layout, state, state->touched[i])]] = false;
}

/* Weigh every flow by 1 / its finish time if its coflow were alone. omcoflow_wc is
 * weighted max-min with these weights. */
static void weigh_by_finish(State *state, double now, double least)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        double left = foreseen(state->fluid + group, now, least);
        scratch->weight[group] = scratch->fair[group] / left;
    }
}

/* Sum up the weights of all flows over each port. Flows that follow one another mostly begin
 * at one port: its sum stays in a register, where an addition takes a third of the time that
 * it takes in memory, and each waits for the one before it. */
static void sum_weights(const Layout *layout, State *state)
{
    const Scratch *scratch = &state->scratch;
    double *load = scratch->load, sum = 0.0;
    int64_t first = -1;
    for (int64_t port = 0; port < layout->ports; port++)
        load[port] = 0.0;
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i], hop = layout->hop_start[group];
        double weight = scratch->weight[group];
        if (layout->hop[hop] != first) {
            if (first >= 0)
                load[first] = sum;
            first = layout->hop[hop];
            sum = load[first];
        }
        sum += weight;
        while (++hop < layout->hop_start[group + 1])
            load[layout->hop[hop]] += weight;
    }
    if (first >= 0)
        load[first] = sum;
}

/* omcoflow and omcoflow_frozen: every port divided by weight. A flow gets the smallest of
 * its shares; what others leave is not handed on. */
static void omcoflow(const Layout *layout, State *state, double now, double least)
{
    Scratch *scratch = &state->scratch;
    weigh_by_finish(state, now, least);
    sum_weights(layout, state);
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        double rate = INFINITY;
        FOR_PORTS(port, layout, group) {
            double share = scratch->weight[group] / scratch->load[port];
            rate = smaller(rate, state->capacity[port] * share);
        }
        if (scratch->weight[group] == 0.0)
            rate = 0.0; /* a link on its way is cut: no share, maybe of no weight at all */
        set_rate(state, group, rate, now);
    }
}

/* Set the gamma of a coflow: the time of its fullest port for it alone, of those that are
 * not cut. */
static void set_gamma(const Layout *layout, State *state, int64_t coflow, double now)
{
    Scratch *scratch = &state->scratch;
    FOR_MEMBERS(group, scratch, coflow)
        scratch->coflows.left[group] = foreseen(state->fluid + group, now, LEAST_LEFT);
    count_coflow(layout, state, coflow);
    scratch->coflows.gamma[coflow] = 0.0;
    FOR_MEMBERS(group, scratch, coflow) {
        FOR_PORTS(port, layout, group) {
            double time = scratch->load[port] / state->capacity[port];
            if (state->capacity[port] > 0.0)
                scratch->coflows.gamma[coflow] = larger(scratch->coflows.gamma[coflow], time);
        }
    }
}

/* omcoflow_gamma, weighted max-min: a coflow weighs 1 / gamma. Within it, MADD: rates in
 * proportion to what is left, so all flows end together. */
static void weigh_by_bottleneck(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (scratch->coflows.first[scratch->order[i]] == scratch->order[i])
            set_gamma(layout, state, scratch->order[i], now);
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        double gamma = scratch->coflows.gamma[scratch->coflows.first[group]];
        bool moves = scratch->fair[group] > 0.0;
        scratch->weight[group] = moves ? scratch->coflows.left[group] / (gamma * gamma) : 0.0;
    }
}
