/* State that changes while a schedule runs, before anything has started. */

static void take_coflows(const Layout *layout, Room *room, Coflows *coflows)
{
    int64_t groups = layout->groups;
    coflows->left = numbers(room, groups);
    coflows->first = integers(room, groups);
    coflows->next = integers(room, groups);
    coflows->is_chained = marks(room, layout->coflows);
    coflows->gamma = numbers(room, groups);
}

static void take_waves(const Layout *layout, Room *room, Waves *waves)
{
    int64_t groups = layout->groups, coflows = layout->coflows;
    if (layout->policy != SEBF_MADD && layout->policy != SINCRONIA && layout->policy != AALO)
        return;
    waves->wave = taken(room, layout->edges, sizeof *waves->wave, true);
    waves->port = taken(room, layout->hops, sizeof *waves->port, true);
    waves->ports = taken(room, layout->hops, sizeof *waves->ports, false);
    waves->open = taken(room, port_words(layout), sizeof *waves->open, true);
    waves->full = taken(room, port_words(layout), sizeof *waves->full, true);
    waves->member = integers(room, layout->edges);
    waves->from = integers(room, layout->edges);
    waves->to = integers(room, layout->edges);
    waves->run_end = integers(room, layout->edges);
    waves->built = copied(room, coflows, layout->coflow_start);
    waves->port_start = integers(room, coflows + 1);
    waves->at = integers(room, layout->hops);
    waves->place = filled_integers(room, groups, -1);
    waves->wave_of = integers(room, groups);
    waves->extra = integers(room, groups);
    waves->next = integers(room, groups);
    waves->has_more = marks(room, groups);
    waves->volume = numbers(room, groups);
    waves->came = numbers(room, groups);
    waves->carried = numbers(room, groups);
    if (layout->policy == SINCRONIA) {
        waves->stake = taken(room, layout->hops, sizeof *waves->stake, true);
        waves->stakes = integers(room, layout->ports);
        waves->listed = integers(room, groups);
        waves->weight = numbers(room, groups);
    }
    for (int64_t coflow = 0, i = 0; coflow < coflows && !measures(room); coflow++) {
        int64_t ports = waves->port_start[coflow];
        for (; i < layout->coflow_start[coflow + 1]; i++) {
            int64_t group = layout->group[layout->coflow_edge[i]];
            ports += group < 0 ? 0 : layout->hop_start[group + 1] - layout->hop_start[group];
        }
        waves->port_start[coflow + 1] = ports;
    }
}

/* Take the first and last ports of all groups: of 5,500 flows they are 44 KB, where looking
 * them up in `hop` reads 130. */
static PortPair *take_pairs(const Layout *layout, Room *room)
{
    PortPair *pair = taken(room, layout->groups, sizeof *pair, false);
    for (int64_t group = 0; group < layout->groups && !measures(room); group++) {
        const int64_t *hop_start = layout->hop_start + group;
        pair[group].first = (int32_t)layout->hop[hop_start[0]];
        pair[group].last = (int32_t)layout->hop[hop_start[1] - 1];
    }
    return pair;
}

/* Take what the rule of a layout uses; the rest stays NULL. */
static void take_scratch(const Layout *layout, Room *room, Scratch *scratch)
{
    int64_t groups = layout->groups, ports = layout->ports;
    int64_t policy = layout->policy;
    scratch->weight = numbers(room, groups);
    scratch->rate = numbers(room, groups);
    scratch->residual = numbers(room, ports);
    scratch->load = numbers(room, ports);
    scratch->flows = integers(room, ports);
    scratch->share = numbers(room, ports);
    if (policy == OES)
        return;
    scratch->crowd = integers(room, ports);
    scratch->noted = integers(room, groups);
    if (policy == MAXMIN)
        return;
    scratch->crossing = integers(room, layout->hops);
    scratch->frozen = marks(room, groups);
    for (int64_t i = 0; i < groups && !measures(room); i++)
        /* Who is not active counts as frozen: filling passes it over. */
        scratch->frozen[i] = true;
    scratch->by_job.flows = integers(room, ports * layout->jobs);
    scratch->by_job.used = numbers(room, ports * layout->jobs);
    scratch->by_job.level = numbers(room, ports * layout->jobs);
    if (!layout->by_flow)
        return;
    scratch->queue = integers(room, ports);
    scratch->order = integers(room, groups);
    scratch->is_ordered = marks(room, groups);
    scratch->key = numbers(room, groups);
    scratch->turn = integers(room, groups);
    scratch->alone = numbers(room, groups);
    scratch->after = numbers(room, groups);
    scratch->fair = numbers(room, groups);
    scratch->changed = integers(room, groups);
    if (policy == OES_CP) {
        scratch->pair = take_pairs(layout, room);
        scratch->open = taken(room, ports, sizeof *scratch->open, true);
    }
    scratch->head = filled_integers(room, ports, -1);
    scratch->asked = taken(room, policy == OWN ? groups : 0, sizeof *scratch->asked, true);
    take_coflows(layout, room, &scratch->coflows);
    take_waves(layout, room, &scratch->waves);
    scratch->offers.at = numbers(room, layout->hops);
    scratch->offers.group = integers(room, layout->hops);
    scratch->offers.served = integers(room, ports);
    scratch->offers.asked = integers(room, ports);
    scratch->offers.last = integers(room, ports);
    scratch->offers.next = integers(room, ports);
    scratch->offers.from = filled_integers(room, ports, -1);
    scratch->offers.to = integers(room, ports);
}

static void take_levels(const Layout *layout, Room *room, Levels *levels)
{
    int64_t ports = layout->ports;
    if (layout->policy != MAXMIN)
        return;
    levels->level = filled(room, ports + 1, INFINITY);
    if (layout->by_port && !measures(room)) /* what is measured must do for either */
        return;
    levels->target = filled(room, ports + 1, INFINITY);
    if (!measures(room))
        levels->target[ports] = 0.0; /* nothing is felt at no port */
    levels->left = copied(room, ports, layout->capacity);
    levels->rising = integers(room, ports);
    levels->place = filled_integers(room, ports, -1);
    levels->dirty_ports = integers(room, ports);
    levels->bound = numbers(room, ports);
    levels->over = taken(room, layout->hops, sizeof *levels->over, true);
    levels->felt = integers(room, layout->groups);
    levels->pairs = !measures(room);
    for (int64_t group = 0; levels->pairs && group < layout->groups; group++)
        levels->pairs = layout->hop_start[group + 1] - layout->hop_start[group] <= 2;
}

static void take_port_clocks(const Layout *layout, Room *room, PortClocks *clocks)
{
    int64_t ports = layout->ports;
    if (!layout->by_port)
        return;
    clocks->clock = taken(room, ports + 1, sizeof *clocks->clock, true);
    clocks->left = numbers(room, ports + 1);
    clocks->flows = integers(room, ports);
    clocks->finish = filled(room, ports, INFINITY);
    clocks->order = integers(room, ports + 1);
    clocks->rank = integers(room, ports + 1);
    clocks->stale = marks(room, ports + 1);
    clocks->first_stale = ports;
    clocks->over = taken(room, layout->hops, sizeof *clocks->over, true);
    clocks->member = integers(room, layout->hops);
    clocks->goal = numbers(room, layout->hops);
    clocks->seat = integers(room, layout->hops);
    clocks->noted = integers(room, ports);
    for (int64_t port = 0; port <= ports && !measures(room); port++) {
        clocks->order[port] = clocks->rank[port] = port;
        clocks->clock[port].least = INFINITY;
        clocks->left[port] = port < ports ? layout->capacity[port] : INFINITY;
    }
}

static void take_lines(const Layout *layout, Room *room, Lines *lines)
{
    if (layout->channels == 0)
        return;
    lines->tally = integers(room, layout->channels * TALLIES);
    lines->calling = integers(room, layout->channels);
    int64_t places = 0;
    for (int64_t edge = 0; edge < layout->edges; edge++) {
        int64_t channel = layout->channel[edge];
        if (channel < 0)
            continue;
        places += layout->sent[edge];
        if (channel + 1 < layout->channels && !measures(room))
            lines->tally[TALLIES * (channel + 1) + FIRST] += layout->sent[edge];
    }
    for (int64_t channel = 1; channel < layout->channels && !measures(room); channel++)
        lines->tally[TALLIES * channel + FIRST] += lines->tally[TALLIES * (channel - 1) + FIRST];
    lines->place = integers(room, 2 * places);
    lines->came = numbers(room, places);
}

static void take_progress(const Layout *layout, Room *room, State *state)
{
    int64_t tasks = layout->tasks, edges = layout->edges;
    state->started = integers(room, tasks);
    state->ended = integers(room, tasks);
    state->missing = integers(room, tasks);
    state->ready = integers(room, edges);
    state->delivered = integers(room, edges);
    /* Without latencies a flow lands as it is served: one array is both. */
    state->landed = state->delivered;
    if (layout->latency != NULL) {
        state->landed = integers(room, edges);
        state->landing = numbers(room, edges);
        state->landing_edge = integers(room, edges);
    }
    state->allowed = copied(room, edges, layout->lag);
    state->served = integers(room, edges);
    state->arrived = integers(room, edges);
    state->free = copied(room, layout->pools, layout->pool_slots);
    state->quota = integers(room, layout->tuners.count);
    state->tunings = integers(room, layout->tuners.count);
    state->samples = integers(room, layout->tuners.count * SAMPLES);
    state->queued = integers(room, tasks);
    state->came = numbers(room, tasks);
    state->woken = integers(room, tasks);
    state->waiting = integers(room, edges);
    state->begun = integers(room, tasks);
    state->opened = integers(room, edges);
    state->gone = integers(room, edges);
    state->length = integers(room, LENGTHS);
    state->due = numbers(room, tasks);
    state->due_task = integers(room, tasks);
    for (int64_t tuner = 0; tuner < layout->tuners.count && !measures(room); tuner++)
        state->quota[tuner] = layout->pool_slots[layout->tuners.tuned[tuner]];
}

static void take_fluids(const Layout *layout, Room *room, State *state)
{
    int64_t groups = layout->groups, edges = layout->edges;
    state->fluid = taken(room, groups, sizeof *state->fluid, true);
    state->present = integers(room, groups);
    state->touched = integers(room, groups);
    state->is_touched = marks(room, groups);
    state->finish = numbers(room, groups);
    state->soonest = numbers(room, groups / BLOCK + 1);
    state->ending = numbers(room, groups);
    state->ending_group = integers(room, groups);
    state->base = numbers(room, edges);
    state->mark = numbers(room, edges);
    state->mark_edge = integers(room, edges);
    state->degree = integers(room, layout->ports);
    state->capacity = copied(room, layout->ports, layout->capacity);
}

static void new_state_in(const Layout *layout, Room *room, State *state)
{
    memset(state, 0, sizeof *state);
    take_progress(layout, room, state);
    take_fluids(layout, room, state);
    take_levels(layout, room, &state->levels);
    take_port_clocks(layout, room, &state->clocks);
    take_scratch(layout, room, &state->scratch);
    take_lines(layout, room, &state->lines);
}

void new_state(const Layout *layout, const double *after, Room room, State *state)
{
    new_state_in(layout, &room, state);
    state->after = after;
    state->demotion = INFINITY;
}

int64_t room_of_state(const Layout *layout)
{
    Room room = {NULL, NULL};
    State state;
    new_state_in(layout, &room, &state);
    return (int64_t)(uintptr_t)room.at;
}
