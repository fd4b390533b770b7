/* Rates by fair sharing: the paper's equal shares, and max-min by weight.
 *
 * oes, Algorithm 1 of the paper: a flow gets the smallest, over its hops, of capacity
 * divided by the number of active flows there. Idle capacity stays idle.
 *
 * Max-min by progressive filling: the rates of all flows rise together, in proportion to
 * their weights; where a port is full its flows are frozen. With equal weights, see
 * max_min.c, every flow gets at least its oes rate: its bottleneck port is full, no flow
 * there has more, so it has capacity / flows or more. */

static inline void equal_share(const Layout *layout, State *state, int64_t group, double now)
{
    set_rate(state, group, least_over(layout, state->scratch.share, group), now);
}

/* Set the oes rate of every group that crosses a port whose share changed. Often none
 * has: where a flow ends, the next one of its edge tends to be ready. */
static inline void share_equally(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t changed = 0;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        FOR_PORTS(port, layout, group) {
            double share = INFINITY;
            if (state->degree[port] > 0)
                share = state->capacity[port] / (double)state->degree[port];
            if (share != scratch->share[port]) {
                scratch->share[port] = share;
                scratch->flows[changed++] = port;
            }
        }
    }
    for (int64_t i = 0; i < changed; i++) {
        int64_t port = scratch->flows[i];
        for (int64_t j = layout->port_start[port]; j < layout->port_start[port + 1]; j++) {
            int64_t group = layout->port_group[j];
            if (state->fluid[group].active > 0)
                equal_share(layout, state, group, now);
        }
    }
    /* Where shares have stayed as they were, a flow that came has no rate yet. */
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        if (state->fluid[state->touched[i]].active > 0)
            equal_share(layout, state, state->touched[i], now);
}

/* The summed weights of the flows over `port` that may still rise.
 *
 * Weights may be as 1 to 1e9: what is left of a sum after most of it was subtracted is
 * rounding, and shares by it exceeded a port by 3e-9. */
static double weight_over(const Layout *layout, const State *state, int64_t port)
{
    const Scratch *scratch = &state->scratch;
    const int64_t *crossing = scratch->crossing + layout->port_start[port];
    double weight = 0.0;
    for (int64_t i = 0; i < scratch->crowd[port]; i++)
        if (!scratch->frozen[crossing[i]])
            weight += scratch->weight[crossing[i]];
    return weight;
}

/* Let `group` have no more than at `level`, that of `full`, one of its ports. */
static inline void freeze(const Layout *layout, State *state, int64_t group, double level,
                          int64_t full)
{
    Scratch *scratch = &state->scratch;
    double weight = scratch->weight[group];
    scratch->frozen[group] = true;
    scratch->rate[group] = level * weight;
    FOR_PORTS(port, layout, group) {
        if (port == full)
            continue;
        scratch->flows[port]--;
        scratch->residual[port] = larger(scratch->residual[port] - level * weight, 0.0);
        scratch->load[port] -= weight;
        /* Less is left than was taken: it may be all rounding. */
        if (scratch->flows[port] > 0 && scratch->load[port] < weight)
            scratch->load[port] = weight_over(layout, state, port);
    }
}

/* Count the flows of scratch.order, which are to share ports by scratch.weight; queue
 * their ports by the levels at which they would be full. Return the number of ports. */
static int64_t queue_ports(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    int64_t queued = 0;
    for (int64_t port = 0; port < layout->ports; port++) {
        scratch->flows[port] = 0;
        scratch->load[port] = 0.0;
    }
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        scratch->rate[group] = 0.0;
        scratch->frozen[group] = scratch->weight[group] == 0.0;
        if (scratch->frozen[group])
            continue;
        FOR_PORTS(port, layout, group) {
            scratch->flows[port]++;
            scratch->load[port] += scratch->weight[group];
        }
    }
    for (int64_t port = 0; port < layout->ports; port++)
        if (scratch->flows[port] > 0)
            push(scratch->share, scratch->queue, queued++,
                 scratch->residual[port] / scratch->load[port], port);
    return queued;
}

/* Set scratch.rate of the flows of scratch.order: scratch.residual shared max-min fairly by
 * scratch.weight. Flows of weight 0 get nothing. The level of a port never falls while
 * lower ones fill, so it is looked at again only when it comes first. */
static void fill_up(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    int64_t queued = queue_ports(layout, state);
    while (queued > 0) {
        int64_t port = scratch->queue[0];
        double level = scratch->residual[port] / scratch->load[port];
        if (scratch->flows[port] > 0 && level > scratch->share[0]) {
            replace(scratch->share, scratch->queue, queued, level, port);
            continue;
        }
        pop(scratch->share, scratch->queue, queued--);
        if (scratch->flows[port] == 0)
            continue;
        const int64_t *crossing = scratch->crossing + layout->port_start[port];
        for (int64_t i = 0; i < scratch->crowd[port]; i++)
            if (!scratch->frozen[crossing[i]])
                freeze(layout, state, crossing[i], level, port);
    }
}

/* Rates by fair sharing where every port is divided among jobs first.
 *
 * Counts per port and job stand at port * jobs + job. Everything is counted anew at every
 * event: few clusters run several jobs at once, and those few jobs. */

/* Levels that are apart by less, as a share, are one. */
static const double SAME = 1e-12;

/* Count the active flows of every job over every port, and the jobs there. */
static void count_by_job(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    for (int64_t place = 0; place < layout->ports * layout->jobs; place++) {
        scratch->by_job.flows[place] = 0;
        scratch->by_job.used[place] = 0.0;
    }
    for (int64_t port = 0; port < layout->ports; port++)
        scratch->flows[port] = 0;
    for (int64_t i = 0; i < state->length[PRESENT]; i++) {
        int64_t group = state->present[i];
        FOR_PORTS(port, layout, group) {
            int64_t place = port * layout->jobs + layout->owner[group];
            if (scratch->by_job.flows[place] == 0)
                scratch->flows[port]++;
            scratch->by_job.flows[place] += state->fluid[group].active;
        }
    }
}

/* Give every flow the least of its job's equal shares of the ports it crosses. */
static void share_equally_by_job(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    count_by_job(layout, state);
    for (int64_t i = 0; i < state->length[PRESENT]; i++) {
        int64_t group = state->present[i];
        double rate = INFINITY;
        FOR_PORTS(port, layout, group) {
            int64_t flows = scratch->by_job.flows[port * layout->jobs + layout->owner[group]];
            rate = smaller(rate,
                           state->capacity[port] / (double)(scratch->flows[port] * flows));
        }
        set_rate(state, group, rate, now);
    }
}

/* Note what every job's flows could rise to at every port; return the least. */
static double next_level(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    double least = INFINITY;
    for (int64_t place = 0; place < layout->ports * layout->jobs; place++) {
        scratch->by_job.level[place] = INFINITY;
        if (scratch->by_job.flows[place] > 0) {
            int64_t port = place / layout->jobs;
            double part = scratch->residual[port] / (double)scratch->flows[port];
            double left = larger(part - scratch->by_job.used[place], 0.0);
            scratch->by_job.level[place] = left / (double)scratch->by_job.flows[place];
            least = smaller(least, scratch->by_job.level[place]);
        }
    }
    return least;
}

static void freeze_of_job(const Layout *layout, State *state, int64_t group, double rate,
                          double now)
{
    Scratch *scratch = &state->scratch;
    int64_t count = state->fluid[group].active;
    scratch->frozen[group] = true;
    set_rate(state, group, rate, now);
    FOR_PORTS(port, layout, group) {
        int64_t place = port * layout->jobs + layout->owner[group];
        scratch->by_job.flows[place] -= count;
        scratch->by_job.used[place] += (double)count * rate;
        if (scratch->by_job.flows[place] == 0) {
            scratch->flows[port]--;
            scratch->residual[port] =
                larger(scratch->residual[port] - scratch->by_job.used[place], 0.0);
        }
    }
}

/* Raise all flows until their job's part of a port is full; then freeze them there.
 *
 * The part is equal among the jobs with flows that rise still; what the others have not
 * used is theirs. scratch.residual is a port without what the others use. Parts that are
 * full at one level freeze together: one of them first would leave more to the other, and
 * a rule must not depend on the order of ports. */
static void share_max_min_by_job(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t jobs = layout->jobs;
    count_by_job(layout, state);
    empty_ports(layout, state);
    for (int64_t i = 0; i < state->length[PRESENT]; i++)
        scratch->frozen[state->present[i]] = false; /* as it is of all others */
    double level;
    while ((level = next_level(layout, state)) != INFINITY) {
        for (int64_t place = 0; place < layout->ports * jobs; place++) {
            if (scratch->by_job.level[place] > level * (1.0 + SAME))
                continue;
            int64_t port = place / jobs;
            for (int64_t i = layout->port_start[port]; i < layout->port_start[port + 1]; i++) {
                int64_t group = layout->port_group[i];
                if (!scratch->frozen[group] && layout->owner[group] == place % jobs)
                    freeze_of_job(layout, state, group, level, now);
            }
        }
    }
}

/* Rates of fifo: every machine sends one flow at a time, first come first served.
 *
 * First is what its source produced first. An edge that has more to send than its active
 * flow produced that later, so no pending flow is ahead of the active ones. The heads of
 * the queues share the ports that they meet at max-min fairly. */

/* The group whose flow comes first of those that queue at `port`. */
static int64_t first_in_line(const Layout *layout, const State *state, int64_t port)
{
    int64_t first = -1;
    const int64_t *crossing = state->scratch.crossing + layout->port_start[port];
    for (int64_t i = 0; i < state->scratch.crowd[port]; i++) {
        int64_t group = crossing[i];
        if (layout->hop[layout->hop_start[group]] != port)
            continue;
        if (first < 0 || precedes(layout, state, group, first))
            first = group;
    }
    return first;
}

/* Empty the ports of `group`: what they give is given anew. */
static void disturb(const Layout *layout, State *state, int64_t group)
{
    FOR_PORTS(port, layout, group)
        state->scratch.residual[port] = state->capacity[port];
}

static bool is_disturbed(const Layout *layout, const State *state, int64_t group)
{
    FOR_PORTS(port, layout, group)
        if (state->scratch.residual[port] > 0.0)
            return true;
    return false;
}

/* Find the heads of the queues where flows came or went. */
static void change_heads(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    note_crowds(layout, state);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->fluid[group].active > 0) {
            int64_t edge = flow_edge(layout, state, group);
            note_flow(layout, state, group);
            scratch->key[group] =
                state->log.flow_ready[edge * layout->iterations + state->delivered[edge]];
            set_rate(state, group, 0.0, now);
        }
    }
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t port = layout->hop[layout->hop_start[state->touched[i]]];
        int64_t head = first_in_line(layout, state, port), before = scratch->head[port];
        if (before >= 0 && head != before) {
            disturb(layout, state, before);
            if (state->fluid[before].active > 0)
                set_rate(state, before, 0.0, now);
        }
        if (head >= 0 && (head != before || state->is_touched[head]))
            disturb(layout, state, head);
        scratch->head[port] = head;
    }
}

/* Share the ports anew among the heads that may feel what came and went. Others keep
 * their rates: no chain of shared ports leads to them. */
static void serve_heads(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t port = 0; port < layout->ports; port++)
        scratch->residual[port] = 0.0;
    change_heads(layout, state, now);
    int64_t before = -1;
    state->length[ORDERED] = 0;
    /* Until no other head shares a port with one that is disturbed. */
    while (state->length[ORDERED] > before) {
        before = state->length[ORDERED];
        for (int64_t port = 0; port < layout->ports; port++) {
            int64_t group = scratch->head[port];
            if (group < 0 || scratch->is_ordered[group])
                continue;
            if (is_disturbed(layout, state, group)) {
                disturb(layout, state, group);
                scratch->is_ordered[group] = true;
                scratch->weight[group] = 1.0;
                scratch->order[state->length[ORDERED]++] = group;
            }
        }
    }
    fill_up(layout, state);
    set_rates_of(state, scratch->order, state->length[ORDERED], now);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        scratch->is_ordered[scratch->order[i]] = false;
}
