/* Ends that come from outside, taken in at their times: many instants in one call. */

/* Gates: tasks without a process, whose ends no process reports.
 *
 * A gate takes no time or a stated one, and no bytes come to it or leave it. So the
 * scheduler computes its end: at an instant gates end before slots are granted, as the
 * tasks of a simulation do. */

/* Take the gates that begin now out of the tasks to announce to processes. */
static void start_gates(const Layout *layout, State *state, Gates *gates, double now)
{
    if (gates->times == NULL)
        return;
    int64_t others = 0;
    for (int64_t i = 0; i < state->length[BEGUN]; i++) {
        int64_t task = state->begun[i];
        double seconds = gates->times[task * layout->iterations + state->started[task] - 1];
        if (isnan(seconds)) {
            state->begun[others++] = task;
            continue;
        }
        gates->since[task] = now;
        push(state->due, state->due_task, state->length[GATES]++, now + seconds, task);
    }
    state->length[BEGUN] = others;
}

/* When the next gate ends, infinity if none runs. */
static double next_gate(const State *state)
{
    return state->length[GATES] > 0 ? state->due[0] : INFINITY;
}

/* Take in that gates ended by `instant`; return true where any did. */
static bool end_gates(const Layout *layout, State *state, Gates *gates, double instant,
                      double now)
{
    bool ended = false;
    while (state->length[GATES] > 0 && state->due[0] <= instant) {
        int64_t task = state->due_task[0], place = gates->ended++;
        pop(state->due, state->due_task, state->length[GATES]--);
        gates->task[place] = task;
        gates->iteration[place] = state->ended[task];
        gates->start[place] = gates->since[task];
        end_task(layout, state, task, now);
        ended = true;
    }
    return ended;
}

/* True where no room is left for an instant at which everything happens. */
static bool is_full(const Layout *layout, const Instants *found, int64_t count)
{
    return count == found->room
           || found->tasks[count] + layout->tasks > found->task_room
           || found->flows[count] + layout->edges > found->flow_room
           || found->lines[count] + 2 * layout->edges > found->line_room;
}

/* True where the task of an end is running, or its flow on its way. */
static bool can_end(const State *state, const RateChanges *board, const Ends *ends,
                    int64_t place)
{
    int64_t task = ends->task[place], edge = ends->edge[place];
    int64_t iteration = ends->iteration[place];
    if (task >= 0)
        return state->ended[task] == iteration && iteration < state->started[task];
    return state->delivered[edge] == iteration && iteration == board->iteration[edge]
           && state->ready[edge] > iteration && iteration >= state->arrived[edge];
}

/* Take an end in; return true where anything may follow from it. */
static bool take_in(const Layout *layout, State *state, const Ends *ends, int64_t place,
                    double now)
{
    if (ends->task[place] < 0)
        return arrive(layout, state, ends->edge[place], now);
    end_task(layout, state, ends->task[place], now);
    return true;
}

/* Draw the consequences of an instant; return how many lines changed. */
static int64_t decide(const Layout *layout, State *state, const double *volumes, Gates *gates,
                      RateChanges *board, double now)
{
    bool more = true;
    state->length[BEGUN] = 0;
    state->length[OPENED] = 0;
    while (more) {
        settle(layout, state, volumes, now);
        start_gates(layout, state, gates, now);
        more = end_gates(layout, state, gates, now * (1.0 + TIE), now);
        more |= land(layout, state, now * (1.0 + TIE));
        if (!more && state->length[CALLING] > 0) {
            give_turns(state);
            more = true;
        }
        if (!more && state->length[QUEUED] > 0) {
            /* Gates may get slots, too, and no process would start them. */
            more = grant_slots(layout, state, now);
            start_gates(layout, state, gates, now);
        }
        if (!more)
            more = tune(layout, state, now * (1.0 + TIE));
    }
    set_rates(layout, state, now);
    return changed_segments(layout, state, board, now);
}

static void add_line(Instants *found, int64_t row, int64_t edge, int64_t iteration,
                     double amount, double rate, double now)
{
    found->edge[row] = edge;
    found->iteration[row] = iteration;
    found->amount[row] = amount;
    found->rate[row] = rate;
    found->since[row] = now;
}

/* Append what was begun, opened and changed to the part of instant `count`. */
static void note_instant(const Layout *layout, const State *state, const double *volumes,
                         const Gates *gates, const RateChanges *board, int64_t changed,
                         Instants *found, int64_t count, double now)
{
    int64_t tasks = found->tasks[count], flows = found->flows[count];
    int64_t lines = found->lines[count];
    for (int64_t i = 0; i < state->length[BEGUN]; i++) {
        found->task[tasks] = state->begun[i];
        found->task_iteration[tasks++] = state->started[state->begun[i]] - 1;
    }
    for (int64_t i = 0; i < state->length[OPENED]; i++) {
        found->flow[flows] = state->opened[i];
        found->flow_iteration[flows++] = state->delivered[state->opened[i]];
    }
    /* First, as `served` counts them: senders note by themselves that these have ended. */
    for (int64_t i = 0; i < state->length[GONE]; i++) {
        int64_t edge = state->gone[i], iteration = state->served[edge] - 1;
        double volume = volumes[edge * layout->iterations + iteration];
        add_line(found, lines++, edge, iteration, volume, 0.0, now);
    }
    found->served[count] = state->length[GONE];
    for (int64_t i = 0; i < changed; i++) {
        int64_t edge = board->edge[i];
        add_line(found, lines++, edge, board->iteration[edge], board->served[i],
                 board->rate[edge], now);
    }
    found->time[count] = now;
    found->tasks[count + 1] = tasks;
    found->flows[count + 1] = flows;
    found->lines[count + 1] = lines;
    found->gates[count + 1] = gates->ended;
}

/* `ahead`, or before it when a task that began may end. */
static double least_end(const Layout *layout, const State *state, const double *holds,
                        double ahead, double now)
{
    for (int64_t i = 0; i < state->length[BEGUN]; i++) {
        if (holds == NULL)
            /* How long it takes is not known: it may end at once. */
            return -INFINITY;
        int64_t task = state->begun[i];
        double least = holds[task * layout->iterations + state->started[task] - 1];
        ahead = smaller(ahead, now + least);
    }
    return ahead;
}

/* When a capacity or a queue changes next, or a quota may; the latter only until all tasks
 * ended. */
static double next_stated(const Layout *layout, const State *state)
{
    double change = smaller(next_change(layout, state), state->demotion);
    for (int64_t task = 0; layout->tuners.count > 0 && task < layout->tasks; task++)
        if (state->ended[task] < layout->rounds[task])
            return smaller(change, next_tuning(layout, state));
    return change;
}

/* The time of the next internal event, which no process reports. */
static double next_internal(const Layout *layout, State *state)
{
    double next = smaller(next_end(layout, state), smaller(next_gate(state), next_landing(state)));
    return smaller(next, next_stated(layout, state));
}

/* Take in ends from passage->taken on, each at its time, while there is room.
 *
 * Ends, of fluids and gates too, landings, changes of capacities and looks at quotas are taken in
 * by `until`, and before passage->ahead as long as nothing unknown can come before them: every fluid that
 * ended has arrived, and no task began that may have ended by then. An end older than
 * passage->now counts as now; what has one time is of one instant, and a flow that arrives
 * before its fluid's end makes none. With a negative passage->taken the schedule begins.
 *
 * IMPOSSIBLE: the end at passage->taken is. */
int64_t pass_instants(const Layout *layout, State *state, const double *volumes,
                      const double *holds, Gates *gates, RateChanges *board,
                      const Ends *ends, double until, Instants *found, Passage *passage)
{
    bool begins = passage->taken < 0;
    passage->count = 0;
    gates->ended = 0;
    if (begins) {
        begin(layout, state);
        passage->taken = 0;
    }
    while (!is_full(layout, found, passage->count)) {
        double end = next_end(layout, state);
        double reported = passage->taken < ends->count ? ends->time[passage->taken] : INFINITY;
        state->length[GONE] = 0;
        if (begins) {
            begins = false;
        } else {
            double change = next_stated(layout, state);
            double own = smaller(next_gate(state), next_landing(state));
            double at = smaller(smaller(smaller(end, reported), own), change);
            if (at == INFINITY
                || !(at <= until
                     || (at < passage->ahead
                         && all_known(layout, state, at * (1.0 + TIE))))) {
                passage->next = next_internal(layout, state);
                return DONE;
            }
            at = larger(passage->now, at);
            double instant = at * (1.0 + TIE);
            bool happens = end <= instant || change <= instant;
            while (passage->taken < ends->count && ends->time[passage->taken] <= instant) {
                if (!can_end(state, board, ends, passage->taken)) {
                    passage->next = end;
                    return IMPOSSIBLE;
                }
                happens |= take_in(layout, state, ends, passage->taken++, at);
            }
            happens |= end_gates(layout, state, gates, instant, at);
            happens |= land(layout, state, instant);
            if (!happens)
                continue;
            passage->now = at;
            if (end <= instant)
                end_fluids(layout, state, instant, at, 0.0);
            change_capacities(layout, state, instant);
            change_queues(state, instant);
        }
        double now = passage->now;
        int64_t changed = decide(layout, state, volumes, gates, board, now);
        passage->ahead = least_end(layout, state, holds, passage->ahead, now);
        note_instant(layout, state, volumes, gates, board, changed, found, passage->count,
                     now);
        passage->count++;
    }
    passage->next = next_internal(layout, state);
    return FULL;
}

bool all_ended(const Layout *layout, const State *state)
{
    for (int64_t task = 0; task < layout->tasks; task++)
        if (state->ended[task] != layout->rounds[task])
            return false;
    return true;
}

/* Flows of a group share a service clock, which runs on until the next settling: a flow is
 * served from where it stood at its start (`base`), and no more than its volume. */
static double served_bytes(const Layout *layout, const State *state, const double *volumes,
                           int64_t edge, double time)
{
    int64_t iteration = state->delivered[edge];
    double volume = volumes[edge * layout->iterations + iteration];
    if (state->served[edge] > iteration) /* the last byte is on its way */
        return volume;
    double service = service_of(layout, state, layout->group[edge], time);
    return smaller(service - state->base[edge], volume);
}

void services_of(const Layout *layout, const State *state, const RateChanges *board,
                 const double *volumes, const int64_t *edge, int64_t count, double time,
                 double *bytes)
{
    for (int64_t i = 0; i < count; i++) {
        bool is_active = board->iteration[edge[i]] == state->delivered[edge[i]];
        bytes[i] = is_active ? served_bytes(layout, state, volumes, edge[i], time) : NAN;
    }
}
