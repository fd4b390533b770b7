/* From a policy's code to the rates of all active flows. */

/* Slack below this share of the longest remaining path counts as this much. */
static const double LEAST_SLACK = 0.01;

/* Weigh every flow by 1 / slack: how much later than now its path may begin. Paths over a
 * link that is cut are no measure, and their flows weigh nothing. */
static void weigh_by_slack(State *state, double now)
{
    Scratch *scratch = &state->scratch;
    double longest = 0.0;
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        double path = remaining_path(state, group, now);
        scratch->key[group] = path;
        if (path < INFINITY)
            longest = larger(longest, path);
    }
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        double slack = larger(longest - scratch->key[group], LEAST_SLACK * longest);
        scratch->weight[group] = scratch->key[group] < INFINITY ? 1.0 / slack : 0.0;
    }
}

/* Set the max-min fair rates of flows that were weighed. */
static void fill_by_weight(const Layout *layout, State *state, double now)
{
    note_crowds(layout, state);
    fill_up(layout, state);
    set_rates_of(state, state->scratch.order, state->length[ORDERED], now);
}

/* Set the rates that a rule of one's own gives, which Python asks and checks. Where it
 * fails all are 0, as those of every later question: the schedule gets stuck, and Python
 * raises what happened. */
static void ask_own(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[ORDERED]; i++) {
        int64_t group = scratch->order[i];
        scratch->asked[i] = (Asked){
            .group = group,
            .edge = flow_edge(layout, state, group),
            .turn = scratch->turn[group],
            .volume = state->fluid[group].mark,
            .left = remaining(state->fluid + group, now),
        };
    }
    Question question = {
        .now = now,
        .before = state->asked++,
        .flows = state->length[ORDERED],
        .flow = scratch->asked,
        .hop_start = layout->hop_start,
        .hop = layout->hop,
        .capacity = state->capacity,
    };
    layout->ask(layout->own, &question);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        set_rate(state, scratch->asked[i].group, scratch->asked[i].rate, now);
}

/* Set the rate of every flow under a policy that keeps the order of active flows. */
static void allocate_in_order(const Layout *layout, State *state, double now)
{
    note_active(layout, state);
    empty_ports(layout, state);
    /* Codes of all readings of omcoflow stand side by side in core.h. */
    if (OMCOFLOW <= layout->policy && layout->policy <= OMCOFLOW_GAMMA)
        chain_coflows(layout, state);
    switch (layout->policy) {
    case WEIGHTED_MAXMIN:
        weigh_by_slack(state, now);
        fill_by_weight(layout, state, now);
        break;
    case OMCOFLOW:
        omcoflow(layout, state, now, LEAST_LEFT);
        break;
    case OMCOFLOW_FROZEN:
        omcoflow(layout, state, now, WHOLE);
        break;
    case OMCOFLOW_WC:
        weigh_by_finish(state, now, LEAST_LEFT);
        fill_by_weight(layout, state, now);
        break;
    case OMCOFLOW_GAMMA:
        weigh_by_bottleneck(layout, state, now);
        fill_by_weight(layout, state, now);
        break;
    case OWN:
        ask_own(layout, state, now);
        break;
    }
}

/* Give every active flow its rate from `now` on. Nothing happens where no flow came or
 * went since the last call, and no capacity changed that an active one crosses. */
static inline void set_rates(const Layout *layout, State *state, double now)
{
    if (state->length[TOUCHED] == 0)
        return;
    switch (layout->policy) {
    case OES:
        share_equally(layout, state, now);
        break;
    case MAXMIN:
        if (layout->by_port)
            share_by_port(layout, state, now);
        else
            share_max_min(layout, state, now);
        break;
    case OES_BY_JOB:
        share_equally_by_job(layout, state, now);
        break;
    case MAXMIN_BY_JOB:
        share_max_min_by_job(layout, state, now);
        break;
    case FIFO:
        serve_heads(layout, state, now);
        break;
    case OES_CP:
        floor_and_critical_path(layout, state, now);
        break;
    case SEBF_MADD:
    case SINCRONIA:
    case AALO:
        serve_waves(layout, state, now);
        break;
    case MRTF:
    case MRTF_EXCLUSIVE:
        serve_shortest(layout, state, now);
        break;
    default:
        allocate_in_order(layout, state, now);
    }
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        state->is_touched[state->touched[i]] = false;
    state->length[TOUCHED] = 0;
}
