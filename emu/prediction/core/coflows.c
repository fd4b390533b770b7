/* Rates by coflow: the active flows to one iteration of one task.
 *
 * OMCoflow (Tan et al., ToN 27(5) 2019) as section VI-B of the DGTP paper describes it:
 * rates within a coflow inversely proportional to the predicted finish time of the flow,
 * supposing that its coflow is alone. Which formula that means is our reading; the
 * variants are ours as well. SEBF and MADD are Varys' (SIGCOMM 2014).
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

/* Set the rates of the flows of `coflow` if equal shares were all that counts, and the
 * port that all of them cross, mostly that into the machine of their task. */
static void set_fair_rates(const Layout *layout, State *state, int64_t coflow)
{
    Scratch *scratch = &state->scratch;
    int64_t members = 0;
    count_coflow(layout, state, coflow);
    FOR_MEMBERS(group, scratch, coflow) {
        members++;
        double rate = INFINITY;
        FOR_PORTS(port, layout, group) {
            rate = smaller(rate, state->capacity[port] / (double)scratch->flows[port]);
        }
        scratch->fair[group] = rate;
    }
    scratch->coflows.common[coflow] = -1;
    FOR_PORTS(port, layout, coflow)
        if (scratch->flows[port] == members)
            scratch->coflows.common[coflow] = port;
}

static inline int64_t rank_of(const Layout *layout, const State *state, int64_t group)
{
    return layout->rank[flow_edge(layout, state, group)];
}

/* Chain the flows to the iteration that `first` serves, by their ranks; return the first.
 * Its place is `i`, those to other iterations stay as they are. */
static int64_t chain_turn(const Layout *layout, State *state, int64_t first, int64_t i,
                          int64_t end)
{
    Scratch *scratch = &state->scratch;
    int64_t head = first, last = first;
    scratch->coflows.next[first] = -1;
    for (int64_t j = i + 1; j < end; j++) {
        int64_t group = active_at(layout, state, j), *link = &head;
        if (group < 0 || scratch->turn[group] != scratch->turn[first])
            continue;
        int64_t rank = rank_of(layout, state, group);
        if (rank_of(layout, state, last) < rank) {
            link = &scratch->coflows.next[last];
            last = group;
        }
        while (*link >= 0 && rank_of(layout, state, *link) < rank)
            link = &scratch->coflows.next[*link];
        scratch->coflows.next[group] = *link;
        *link = group;
    }
    return head;
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
        coflow = chain_turn(layout, state, coflow, i, end);
        FOR_MEMBERS(group, scratch, coflow)
            scratch->coflows.first[group] = coflow;
        scratch->coflows.gamma[coflow] = -1.0;
        set_fair_rates(layout, state, coflow);
        if (!scratch->is_ordered[coflow]) { /* where coflows are ordered, not flows */
            scratch->is_ordered[coflow] = true;
            scratch->order[state->length[ORDERED]++] = coflow;
        }
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

/* omcoflow and omcoflow_frozen: every port divided by weight. A flow gets the smallest of
 * its shares; what others leave is not handed on. */
static void omcoflow(const Layout *layout, State *state, double now, double least)
{
    Scratch *scratch = &state->scratch;
    weigh_by_finish(state, now, least);
    for (int64_t port = 0; port < layout->ports; port++)
        scratch->load[port] = 0.0;
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        FOR_PORTS(port, layout, group)
            scratch->load[port] += scratch->weight[group];
    }
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

/* Set the gamma of a coflow, and the key by it: the time of its fullest port for it alone, of
 * those that are not cut. It is what it was as long as the coflow is the same and nothing
 * is sent, which scratch.frozen notes. */
static void set_gamma(const Layout *layout, State *state, int64_t coflow, double now,
                      double least)
{
    Scratch *scratch = &state->scratch;
    scratch->frozen[coflow] = scratch->coflows.gamma[coflow] >= 0.0;
    if (scratch->frozen[coflow])
        return;
    FOR_MEMBERS(group, scratch, coflow)
        scratch->coflows.left[group] = foreseen(state->fluid + group, now, least);
    count_coflow(layout, state, coflow);
    scratch->coflows.gamma[coflow] = 0.0;
    FOR_MEMBERS(group, scratch, coflow) {
        FOR_PORTS(port, layout, group) {
            double time = scratch->load[port] / state->capacity[port];
            if (state->capacity[port] > 0.0)
                scratch->coflows.gamma[coflow] = larger(scratch->coflows.gamma[coflow], time);
        }
    }
    scratch->key[coflow] = coarse(scratch->coflows.gamma[coflow]);
}

static void set_gammas(const Layout *layout, State *state, double now, double least)
{
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = state->scratch.order[i];
        if (state->scratch.coflows.first[group] == group)
            set_gamma(layout, state, group, now, least);
    }
}

/* omcoflow_gamma, weighted max-min: a coflow weighs 1 / gamma. Within it, MADD: rates in
 * proportion to what is left, so all flows end together. */
static void weigh_by_bottleneck(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        scratch->coflows.gamma[scratch->order[i]] = -1.0;
    set_gammas(layout, state, now, LEAST_LEFT);
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        double gamma = scratch->coflows.gamma[scratch->coflows.first[group]];
        bool moves = scratch->fair[group] > 0.0;
        scratch->weight[group] = moves ? scratch->coflows.left[group] / (gamma * gamma) : 0.0;
    }
}

/* True where `coflow` needs a port on which nothing is left; mostly it is the one that all
 * its flows cross. */
static bool is_blocked(const Layout *layout, const State *state, int64_t coflow)
{
    const Scratch *scratch = &state->scratch;
    int64_t common = scratch->coflows.common[coflow];
    if (common >= 0 && scratch->residual[common] == 0.0)
        return true;
    FOR_MEMBERS(group, scratch, coflow) {
        FOR_PORTS(port, layout, group) {
            if (scratch->residual[port] <= CRUMB * state->capacity[port])
                return true;
        }
    }
    return false;
}

/* MADD: let all flows of `coflow` end together, as soon as the rest allows. */
static void allocate_minimum(const Layout *layout, State *state, int64_t coflow)
{
    Scratch *scratch = &state->scratch;
    double slowest = 0.0;
    count_coflow(layout, state, coflow);
    FOR_MEMBERS(group, scratch, coflow) {
        FOR_PORTS(port, layout, group) {
            slowest = larger(slowest, scratch->load[port] / scratch->residual[port]);
        }
    }
    FOR_MEMBERS(group, scratch, coflow) {
        scratch->rate[group] = scratch->coflows.left[group] / slowest;
        take(layout, state, group, scratch->rate[group]);
    }
    scratch->frozen[coflow] = false;
}

/* Bring scratch.order up to date: the first flow of every coflow. */
static void note_coflows(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    int64_t kept = 0;
    chain_coflows(layout, state);
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        scratch->is_ordered[group] =
            state->fluid[group].active > 0 && scratch->coflows.first[group] == group;
        if (scratch->is_ordered[group])
            scratch->order[kept++] = group;
    }
    state->length[ORDERED] = kept;
}

/* Give the flows of `coflow` what is left beside their rates. Where nothing of it was sent
 * nothing changes once the port is full that all of them cross: of 592 coflows on a dense
 * job 454 are not looked at. */
static void hand_out_rest(const Layout *layout, State *state, int64_t coflow, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t common = scratch->frozen[coflow] ? scratch->coflows.common[coflow] : -1;
    FOR_MEMBERS(group, scratch, coflow) {
        if (common >= 0 && scratch->residual[common] == 0.0)
            return;
        double more = spare(layout, state, group), rate = scratch->rate[group] + more;
        if (more > 0.0)
            take(layout, state, group, more);
        if (rate > 0.0)
            scratch->coflows.gamma[coflow] = -1.0; /* something is sent */
        set_rate(state, group, rate, now);
        scratch->rate[group] = 0.0;
    }
}

/* sebf_madd: coflows by gamma, MADD within, the rest to flows in that order. */
static void smallest_bottleneck_first(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        if (state->fluid[state->touched[i]].active > 0)
            note_flow(layout, state, state->touched[i]);
    note_coflows(layout, state);
    empty_ports(layout, state);
    set_gammas(layout, state, now, 0.0);
    sort_flows(layout, state);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (!is_blocked(layout, state, scratch->order[i]))
            allocate_minimum(layout, state, scratch->order[i]);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        hand_out_rest(layout, state, scratch->order[i], now);
}
