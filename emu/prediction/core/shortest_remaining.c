/* Rates of mrtf and mrtf_exclusive: least remaining time first, SRPT as section VI-B of
 * the DGTP paper has it, and pFabric's ideal schedule (SIGCOMM 2013).
 *
 * A flow gets what those before it leave on its ports. Every port keeps its flows in their
 * order, and what each is offered there: what the one before it is, less its rate. An
 * event breaks some of these equations. A walk along every such port mends them, from the
 * first that is broken until they hold; of all walks the one whose next flow goes first
 * makes the next step, so that rates are mostly set once. Only a flow that is served
 * overtakes: what waits has left what it had. Of 686 flows at once 92 are served, and an
 * event changes 4 rates. */

/* The entry of `hop` at which `group` crosses `port`. */
static inline int64_t hop_over(const Layout *layout, int64_t group, int64_t port)
{
    int64_t hop = layout->hop_start[group];
    while (layout->hop[hop] != port)
        hop++;
    return hop;
}

/* Have offers over `port` mended from `place` on, and looked at up to `last` at least. */
static void walk_from(State *state, int64_t port, int64_t place, int64_t last)
{
    Scratch *scratch = &state->scratch;
    if (scratch->offers.from[port] < 0) {
        scratch->queue[state->length[WALKS]++] = port;
        scratch->offers.from[port] = place;
        scratch->offers.to[port] = last;
    } else {
        scratch->offers.from[port] = at_most(scratch->offers.from[port], place);
        scratch->offers.to[port] = at_least(scratch->offers.to[port], last);
    }
}

/* The bandwidth of `port` that is left for whichever flow has that place. */
static double offer_at(const Layout *layout, const State *state, int64_t port, int64_t place)
{
    const Scratch *scratch = &state->scratch;
    if (place == layout->port_start[port])
        return state->capacity[port];
    int64_t before = scratch->crossing[place - 1];
    double left = scratch->offers.at[hop_over(layout, before, port)] - scratch->rate[before];
    return left < CRUMB * state->capacity[port] ? 0.0 : left;
}

/* The least that `group` is offered; mrtf_exclusive takes whole ports only. */
static double least_offer(const Layout *layout, const State *state, int64_t group)
{
    double least = INFINITY;
    FOR_HOPS(i, layout, group) {
        double offer = state->scratch.offers.at[i];
        if (layout->policy == MRTF_EXCLUSIVE && offer < state->capacity[layout->hop[i]])
            offer = 0.0;
        least = smaller(least, offer);
    }
    return least;
}

/* Sort the flows over `port` that were served; what waits behind the last is sorted. */
static void sort_port(const Layout *layout, State *state, int64_t port)
{
    Scratch *scratch = &state->scratch;
    int64_t *crossing = scratch->crossing, first = layout->port_start[port];
    int64_t end = first + scratch->crowd[port];
    for (int64_t i = first; i < end; i++) {
        int64_t group = crossing[i], hole = i;
        if (scratch->offers.at[hop_over(layout, group, port)] == 0.0)
            return;
        while (hole > first && precedes(layout, state, group, crossing[hole - 1])) {
            crossing[hole] = crossing[hole - 1];
            hole--;
        }
        crossing[hole] = group;
        if (hole < i)
            walk_from(state, port, hole, i + 1);
    }
}

/* Take `group` out of the orders of its ports, if it stands there. */
static void leave_orders(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    FOR_PORTS(port, layout, group) {
        int64_t place = place_in(layout, state, port, group);
        if (place == layout->port_start[port] + scratch->crowd[port])
            continue;
        strike(layout, state, port, place);
        if (scratch->rate[group] > 0.0 || scratch->offers.from[port] >= 0)
            walk_from(state, port, place, place);
    }
}

/* Put `group`, which has no rate so far, into the orders of its ports. */
static void join_orders(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i], first = layout->port_start[port];
        int64_t *crossing = scratch->crossing + first, count = scratch->crowd[port]++;
        int64_t place = place_among(layout, state, crossing, count, group);
        insert_at(crossing, count, place, group);
        place += first;
        if (scratch->offers.from[port] >= 0)
            walk_from(state, port, place, scratch->offers.to[port] + 1);
        scratch->offers.at[i] = offer_at(layout, state, port, place);
    }
    if (least_offer(layout, state, group) > 0.0) {
        int64_t port = layout->hop[layout->hop_start[group]];
        int64_t place = place_in(layout, state, port, group);
        walk_from(state, port, place, place);
    }
}

/* Sort the flows over the ports of `group` if it precedes the one before it. */
static void overtake(const Layout *layout, State *state, int64_t group)
{
    FOR_PORTS(port, layout, group) {
        int64_t place = place_in(layout, state, port, group);
        if (place > layout->port_start[port]
            && precedes(layout, state, group, state->scratch.crossing[place - 1]))
            sort_port(layout, state, port);
    }
}

/* Set the key of `group`: what it would still need alone, seconds. */
static void set_key(State *state, int64_t group, double now)
{
    double time = remaining(state->fluid + group, now) / state->scratch.alone[group];
    state->scratch.key[group] = coarse(time);
}

/* Bring the order of every port up to date. */
static void sort_ports(const Layout *layout, State *state, double now)
{
    Scratch *scratch = &state->scratch;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        leave_orders(layout, state, state->touched[i]);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (!state->is_touched[scratch->order[i]])
            set_key(state, scratch->order[i], now);
    for (int64_t i = 0; i < state->length[ORDERED]; i++)
        if (!state->is_touched[scratch->order[i]])
            overtake(layout, state, scratch->order[i]);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->fluid[group].active > 0) {
            note_flow(layout, state, group);
            set_key(state, group, now);
            scratch->rate[group] = 0.0;
            join_orders(layout, state, group);
        }
    }
}

/* Let `group` have `rate`; what is offered behind it is to be mended. */
static void serve(const Layout *layout, State *state, int64_t group, double rate)
{
    Scratch *scratch = &state->scratch;
    scratch->rate[group] = rate;
    FOR_PORTS(port, layout, group) {
        int64_t behind = place_in(layout, state, port, group) + 1;
        walk_from(state, port, behind, behind);
    }
    if (!scratch->is_ordered[group]) {
        scratch->is_ordered[group] = true;
        scratch->order[state->length[ORDERED]++] = group;
    }
}

/* Mend offers over `port` until a rate changes, or would, and the flow of `other` goes
 * first. True at the end, where all offers hold. */
static bool mend_port(const Layout *layout, State *state, int64_t port, int64_t other)
{
    Scratch *scratch = &state->scratch;
    int64_t *place = scratch->offers.from + port;
    int64_t end = layout->port_start[port] + scratch->crowd[port];
    double crumb = CRUMB * state->capacity[port];
    double left = *place < end ? offer_at(layout, state, port, *place) : 0.0;
    for (; *place < end; ++*place) {
        int64_t group = scratch->crossing[*place], hop = hop_over(layout, group, port);
        double before = scratch->offers.at[hop];
        scratch->offers.at[hop] = left;
        double rate = least_offer(layout, state, group);
        if (rate != scratch->rate[group]) {
            if (other >= 0 && scratch->key[other] < scratch->key[group])
                scratch->offers.to[port] = at_least(scratch->offers.to[port], *place + 1);
            else
                serve(layout, state, group, rate);
            return false;
        }
        if (left == before && *place >= scratch->offers.to[port])
            break;
        left -= rate;
        left = left < crumb ? 0.0 : left;
    }
    scratch->offers.from[port] = -1;
    return true;
}

/* The flow that the walk along `port` comes to next, or -1 at its end. */
static inline int64_t next_on(const Layout *layout, const State *state, int64_t port)
{
    int64_t place = state->scratch.offers.from[port];
    bool any = place < layout->port_start[port] + state->scratch.crowd[port];
    return any ? state->scratch.crossing[place] : -1;
}

/* Take the next step of the walk whose next flow has the least key, as `mend_port` compares
 * them: two walks that left the step to each other would do so for ever. */
static void mend_first(const Layout *layout, State *state)
{
    const double *key = state->scratch.key;
    int64_t *walks = state->scratch.queue, place = 0, second = -1;
    int64_t first = next_on(layout, state, walks[0]);
    for (int64_t i = 1; first >= 0 && i < state->length[WALKS]; i++) {
        int64_t group = next_on(layout, state, walks[i]);
        if (group < 0 || key[group] < key[first]) {
            second = first;
            first = group;
            place = i;
        } else if (second < 0 || key[group] < key[second]) {
            second = group;
        }
    }
    if (mend_port(layout, state, walks[place], second))
        walks[place] = walks[--state->length[WALKS]];
}

/* Set the rates of flows that came or were served, or are; keep the last. */
static void set_served_rates(State *state, double now)
{
    Scratch *scratch = &state->scratch;
    int64_t listed = state->length[ORDERED];
    set_rates_of(state, state->touched, state->length[TOUCHED], now);
    set_rates_of(state, scratch->order, listed, now);
    state->length[ORDERED] = 0;
    for (int64_t i = 0; i < listed; i++) {
        int64_t group = scratch->order[i];
        scratch->is_ordered[group] =
            state->fluid[group].active > 0 && scratch->rate[group] > 0.0;
        if (scratch->is_ordered[group])
            scratch->order[state->length[ORDERED]++] = group;
    }
}

/* Give each flow what those before it leave. */
static void serve_shortest(const Layout *layout, State *state, double now)
{
    sort_ports(layout, state, now);
    while (state->length[WALKS] > 0)
        mend_first(layout, state);
    set_served_rates(state, now);
}
