/* Rates of mrtf and mrtf_exclusive: least remaining time first, SRPT as section VI-B of
 * the DGTP paper has it, and pFabric's ideal schedule (SIGCOMM 2013).
 *
 * A flow gets what those before it leave on its ports. Every port keeps the flows that it
 * serves, and what each is offered there: what the one before it is, less its rate. Who waits
 * stands apart, in an order that time does not change: its offer is what the last one served
 * before it leaves, and nothing on one of its ports. An event breaks some of these equations.
 * A walk along every such port mends them, from the first that is broken until they hold; of
 * all walks the one whose next flow goes first makes the next step, so that every flow is
 * rated once. Where a port has something left again, those that wait behind are asked, unless
 * another port of theirs has nothing. Of 4,000 flows at once 82 are served, and an event
 * rates some 20. */

/* Of `Offers.asked`: no flow that waits; and the first behind `last`, wherever it stands. */
static const int64_t NOBODY = INT64_MAX, BEHIND_LAST = -1;
/* Of `Offers.next`: it is to be looked for. */
static const int64_t UNKNOWN = -2;

/* The entry of `hop` at which `group` crosses `port`. */
static inline int64_t hop_over(const Layout *layout, int64_t group, int64_t port)
{
    int64_t hop = layout->hop_start[group];
    while (layout->hop[hop] != port)
        hop++;
    return hop;
}

static inline int64_t *served_on(const Layout *layout, const State *state, int64_t port)
{
    return state->scratch.offers.group + layout->port_start[port];
}

static inline int64_t *waiting_on(const Layout *layout, const State *state, int64_t port)
{
    return state->scratch.crossing + layout->port_start[port];
}

/* The bandwidth of `port` that is left behind the first `place` flows that it serves. */
static inline double left_behind(const Layout *layout, const State *state, int64_t port,
                                 int64_t place)
{
    const Scratch *scratch = &state->scratch;
    if (place == 0)
        return state->capacity[port];
    int64_t before = served_on(layout, state, port)[place - 1];
    double left = scratch->offers.at[hop_over(layout, before, port)] - scratch->rate[before];
    return left < CRUMB * state->capacity[port] ? 0.0 : left;
}

/* What a flow may have of what is left of `port`: mrtf_exclusive takes whole ports only. */
static inline double usable(const Layout *layout, const State *state, int64_t port, double left)
{
    if (layout->policy == MRTF_EXCLUSIVE && left < state->capacity[port])
        return 0.0;
    return left;
}

/* The number of flows that `port` serves before that of `group`. */
static inline int64_t served_before(const Layout *layout, const State *state, int64_t port,
                                    int64_t group)
{
    const int64_t *served = served_on(layout, state, port);
    int64_t count = state->scratch.offers.served[port], place = 0;
    while (place < count && served[place] != group
           && precedes(layout, state, served[place], group))
        place++;
    return place;
}

/* The place of `group` among the flows that `port` serves. */
static inline int64_t place_served(const Layout *layout, const State *state, int64_t port,
                                   int64_t group)
{
    const int64_t *served = served_on(layout, state, port);
    int64_t place = 0;
    while (served[place] != group)
        place++;
    return place;
}

/* Find the first flow that waits at `port` behind the one that was served last. */
static void ask_behind_last(const Layout *layout, State *state, int64_t port)
{
    Offers *offers = &state->scratch.offers;
    offers->asked[port] = place_among(layout, state, waiting_on(layout, state, port),
                                      state->scratch.crowd[port], offers->last[port]);
}

/* Have offers over `port` mended from `place` on, and looked at up to `last` at least; who
 * waits behind all that are served, where nothing was left, may have something now. */
static void walk_from(const Layout *layout, State *state, int64_t port, int64_t place,
                      int64_t last)
{
    Offers *offers = &state->scratch.offers;
    offers->next[port] = UNKNOWN;
    if (offers->from[port] >= 0) {
        offers->from[port] = at_most(offers->from[port], place);
        offers->to[port] = at_least(offers->to[port], last);
        return;
    }
    state->scratch.queue[state->length[WALKS]++] = port;
    offers->from[port] = place;
    offers->to[port] = last;
    offers->asked[port] = NOBODY;
    int64_t count = offers->served[port];
    if (count == 0 || usable(layout, state, port, state->scratch.residual[port]) > 0.0)
        return;
    offers->last[port] = served_on(layout, state, port)[count - 1];
    offers->asked[port] = BEHIND_LAST;
    if (state->is_touched[offers->last[port]]) /* its key will be that of another flow */
        ask_behind_last(layout, state, port);
}

/* Let `group` wait at `port`. */
static void wait_at(const Layout *layout, State *state, int64_t port, int64_t group)
{
    Offers *offers = &state->scratch.offers;
    int64_t *waiting = waiting_on(layout, state, port);
    int64_t count = state->scratch.crowd[port]++;
    int64_t place = place_among(layout, state, waiting, count, group);
    insert_at(waiting, count, place, group);
    if (offers->asked[port] != NOBODY)
        offers->asked[port] += place <= offers->asked[port];
}

/* Take `group`, which waits at `port`, out of those. */
static void wait_no_more(const Layout *layout, State *state, int64_t port, int64_t group)
{
    Offers *offers = &state->scratch.offers;
    int64_t *waiting = waiting_on(layout, state, port);
    int64_t count = state->scratch.crowd[port]--;
    int64_t place = place_among(layout, state, waiting, count, group);
    remove_at(waiting, count, place);
    offers->next[port] = UNKNOWN;
    if (offers->asked[port] != NOBODY)
        offers->asked[port] -= place < offers->asked[port];
}

/* Serve `group` at `port` as the one at `place`. */
static void serve_at(const Layout *layout, State *state, int64_t port, int64_t place,
                     int64_t group)
{
    Offers *offers = &state->scratch.offers;
    walk_from(layout, state, port, place, place);
    insert_at(served_on(layout, state, port), offers->served[port]++, place, group);
    offers->to[port] += place < offers->to[port];
    walk_from(layout, state, port, place + 1, place + 1);
    offers->from[port] += place == offers->from[port];
}

/* Serve `group` at `port` no more. */
static void serve_no_more(const Layout *layout, State *state, int64_t port, int64_t group)
{
    Offers *offers = &state->scratch.offers;
    int64_t place = place_served(layout, state, port, group);
    walk_from(layout, state, port, place, place);
    remove_at(served_on(layout, state, port), offers->served[port]--, place);
    offers->to[port] -= place < offers->to[port];
}

/* Take `group` out of the orders of its ports, if it stands there. */
static void leave_orders(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    if (scratch->noted[group] == 0)
        return;
    FOR_PORTS(port, layout, group) {
        if (scratch->rate[group] > 0.0)
            serve_no_more(layout, state, port, group);
        else
            wait_no_more(layout, state, port, group);
    }
    scratch->noted[group] = 0;
    scratch->rate[group] = 0.0;
}

/* Sort the flows that `port` serves. */
static void sort_port(const Layout *layout, State *state, int64_t port)
{
    int64_t *served = served_on(layout, state, port);
    for (int64_t i = 1; i < state->scratch.offers.served[port]; i++) {
        int64_t group = served[i], hole = i;
        while (hole > 0 && precedes(layout, state, group, served[hole - 1]))
            hole--;
        if (hole == i)
            continue;
        walk_from(layout, state, port, hole, i + 1);
        remove_at(served, i + 1, i);
        insert_at(served, i, hole, group);
    }
}

/* Sort the flows of the ports of `group`, each port once: where it is the first one. */
static void sort_ports_of(const Layout *layout, State *state, int64_t group)
{
    FOR_PORTS(port, layout, group)
        if (served_on(layout, state, port)[0] == group)
            sort_port(layout, state, port);
}

/* Set the key of `group`: what it would still need alone, seconds. */
static void set_key(State *state, int64_t group, double now)
{
    double time = remaining(state->fluid + group, now) / state->scratch.alone[group];
    state->scratch.key[group] = coarse(time);
}

/* Bring the order of every port up to date. Only a flow that is served overtakes, and what
 * waits has nothing to lose by that. */
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
            sort_ports_of(layout, state, scratch->order[i]);
    for (int64_t i = 0; i < state->length[TOUCHED]; i++) {
        int64_t group = state->touched[i];
        if (state->fluid[group].active == 0)
            continue;
        note_flow(layout, state, group);
        set_key(state, group, now);
        scratch->noted[group] = 1;
        FOR_PORTS(port, layout, group)
            wait_at(layout, state, port, group);
    }
}

/* Let `group` have `rate`, which is another; what is offered behind it is to be mended. */
static void change_rate(const Layout *layout, State *state, int64_t group, double rate)
{
    Scratch *scratch = &state->scratch;
    bool was_served = scratch->rate[group] > 0.0;
    FOR_PORTS(port, layout, group) {
        if (was_served && rate == 0.0) {
            serve_no_more(layout, state, port, group);
            wait_at(layout, state, port, group);
        } else if (was_served) {
            int64_t behind = place_served(layout, state, port, group) + 1;
            walk_from(layout, state, port, behind, behind);
        } else {
            wait_no_more(layout, state, port, group);
            serve_at(layout, state, port, served_before(layout, state, port, group), group);
        }
    }
    scratch->rate[group] = rate;
    if (!scratch->is_ordered[group]) {
        scratch->is_ordered[group] = true;
        scratch->order[state->length[ORDERED]++] = group;
    }
}

/* Give `group` the least that it is offered. All that go before it have what they get. */
static void rate_flow(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    double least = INFINITY;
    FOR_HOPS(i, layout, group) {
        int64_t port = layout->hop[i];
        int64_t place = served_before(layout, state, port, group);
        double left = left_behind(layout, state, port, place);
        least = smaller(least, usable(layout, state, port, left));
        if (left != scratch->offers.at[i] && scratch->rate[group] > 0.0)
            walk_from(layout, state, port, place + 1, place + 1);
        scratch->offers.at[i] = left;
    }
    if (least != scratch->rate[group])
        change_rate(layout, state, group, least);
}

/* True where a port that `group` waits at, other than `port`, has nothing for it. One that is
 * walked along may have. */
static bool is_shut_out(const Layout *layout, const State *state, int64_t port, int64_t group)
{
    const Offers *offers = &state->scratch.offers;
    FOR_PORTS(across, layout, group) {
        int64_t count = offers->served[across];
        if (across == port || count == 0 || offers->from[across] >= 0)
            continue;
        if (usable(layout, state, across, state->scratch.residual[across]) == 0.0
            && precedes(layout, state, served_on(layout, state, across)[count - 1], group))
            return true;
    }
    return false;
}

/* The flow that waits at `port`, and that the walk asks next, before that of `served` (-1 for
 * none); -1 for none. */
static int64_t next_waiting(const Layout *layout, State *state, int64_t port, int64_t served,
                            double left)
{
    const int64_t *waiting = waiting_on(layout, state, port);
    int64_t *asked = state->scratch.offers.asked + port;
    if (*asked == BEHIND_LAST && usable(layout, state, port, left) > 0.0)
        ask_behind_last(layout, state, port);
    for (; 0 <= *asked && *asked < state->scratch.crowd[port]; ++*asked) {
        int64_t group = waiting[*asked];
        if (served >= 0 && precedes(layout, state, served, group))
            return -1;
        if (usable(layout, state, port, left) == 0.0) {
            *asked = NOBODY; /* less is left for all of them */
            return -1;
        }
        if (!is_shut_out(layout, state, port, group))
            return group;
    }
    return -1;
}

/* The next flow that the walk along `port` has rated, -1 at its end: all offers hold. */
static int64_t next_on(const Layout *layout, State *state, int64_t port)
{
    Offers *offers = &state->scratch.offers;
    int64_t count = offers->served[port];
    for (;; offers->from[port]++) {
        int64_t place = offers->from[port];
        int64_t served = place < count ? served_on(layout, state, port)[place] : -1;
        double left = left_behind(layout, state, port, place);
        int64_t group = next_waiting(layout, state, port, served, left);
        if (group >= 0 || served < 0)
            return group;
        if (left != offers->at[hop_over(layout, served, port)])
            return served;
        if (place >= offers->to[port])
            return -1;
    }
}

/* End the walk at `place` of the queue. */
static void end_walk(const Layout *layout, State *state, int64_t place)
{
    Scratch *scratch = &state->scratch;
    int64_t port = scratch->queue[place];
    scratch->residual[port] = left_behind(layout, state, port, scratch->offers.served[port]);
    scratch->offers.from[port] = -1;
    scratch->queue[place] = scratch->queue[--state->length[WALKS]];
}

/* The flow that goes first of those that walks have rated next, -1 where all have ended. */
static int64_t first_of_walks(const Layout *layout, State *state)
{
    Scratch *scratch = &state->scratch;
    int64_t first = -1, walk = 0;
    while (walk < state->length[WALKS]) {
        int64_t port = scratch->queue[walk];
        int64_t *next = scratch->offers.next + port;
        if (*next == UNKNOWN)
            *next = next_on(layout, state, port);
        if (*next < 0) {
            end_walk(layout, state, walk);
            continue;
        }
        if (first < 0 || precedes(layout, state, *next, first))
            first = *next;
        walk++;
    }
    return first;
}

/* Rate `group`, and let the walks that had it rated go on. */
static void step(const Layout *layout, State *state, int64_t group)
{
    Offers *offers = &state->scratch.offers;
    rate_flow(layout, state, group);
    FOR_PORTS(port, layout, group) {
        const int64_t *waiting = waiting_on(layout, state, port);
        int64_t asked = offers->asked[port];
        if (offers->from[port] < 0)
            continue;
        if (0 <= asked && asked < state->scratch.crowd[port] && waiting[asked] == group)
            offers->asked[port]++;
        offers->next[port] = UNKNOWN;
    }
}

/* The flow that goes first of the `came` that are not rated yet, and its place; -1 for none. */
static int64_t first_to_come(const Layout *layout, const State *state, int64_t came,
                             int64_t *place)
{
    int64_t first = -1;
    for (int64_t i = 0; i < came; i++) {
        int64_t group = state->scratch.changed[i];
        if (first < 0 || precedes(layout, state, group, first)) {
            first = group;
            *place = i;
        }
    }
    return first;
}

/* Rate the flows that came, and those that feel what came or went. */
static void mend_offers(const Layout *layout, State *state)
{
    int64_t *changed = state->scratch.changed, came = 0, place = 0;
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        if (state->fluid[state->touched[i]].active > 0)
            changed[came++] = state->touched[i];
    for (;;) {
        int64_t first = first_of_walks(layout, state);
        int64_t newcomer = first_to_come(layout, state, came, &place);
        if (newcomer >= 0 && (first < 0 || !precedes(layout, state, first, newcomer))) {
            first = newcomer;
            changed[place] = changed[--came];
        }
        if (first < 0)
            return;
        step(layout, state, first);
    }
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
    mend_offers(layout, state);
    set_served_rates(state, now);
}
