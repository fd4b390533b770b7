/* Start tasks and make flows active: constraints (5)-(11) of the paper.
 *
 * - (j, n) may start when (j, n - 1) ended and every in-edge landed iteration n - lag.
 *   It does so at once or, where it takes a slot, when its turn comes in the pool.
 * - On an edge that reads the newest, that is the least: the task reads the newest that
 *   has arrived when it starts, and it starts when nothing else happens at its instant.
 * - A flow is ready when its source iteration ends, and active when the flow before it on
 *   its edge has ended too; on a channel, when its turn comes there.
 * - What ends on the network lands at its destination after the latency of its route; the
 *   next flow of its edge or channel does not wait for that.
 * - Within a machine, and on an edge of control (a credit, or to or from a gate),
 *   delivery is instant. A flow without bytes ends the moment it would become active and
 *   never counts in a degree.
 * - What no task would receive is not sent, and what no task sends is not waited for:
 *   (j, n) needs (j', n - lag) if both have such an iteration.
 *
 * - A flow ends when its fluid has and its last byte is there. Where nothing is sent that
 *   is one, see `all_arrived`.
 *
 * What happens is taken in by `end_task`, `arrive`, `end_fluids` and `land`, in any order;
 * `settle` then draws the consequences of all events of one instant. Rates come after it. */

/* Slots: tasks of a machine that share a pool, first come first served.
 *
 * Of those that came at one instant the lower iteration is first, then the task that
 * stands first in the job. */

/* Keep of the woken tasks those that start at once; see `Layout.last`. */
static void queue_up(const Layout *layout, State *state, double now)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < state->length[WOKEN]; i++) {
        int64_t task = state->woken[i];
        if (!layout->last[task]) {
            state->woken[kept++] = task;
        } else {
            state->queued[state->length[QUEUED]++] = task;
            state->came[task] = now;
        }
    }
    state->length[WOKEN] = kept;
}

/* True where `task` has come to wait for a slot before `other`. */
static bool is_before(const State *state, int64_t task, int64_t other)
{
    const double *came = state->came;
    if (fabs(came[task] - came[other]) > TIE * came[other])
        return came[task] < came[other];
    if (state->started[task] != state->started[other])
        return state->started[task] < state->started[other];
    return task < other;
}

/* Wake the waiting tasks that get a slot or need none, to read the newest. */
static void grant(const Layout *layout, State *state)
{
    for (;;) {
        int64_t place = -1;
        for (int64_t i = 0; i < state->length[QUEUED]; i++) {
            int64_t task = state->queued[i], pool = layout->takes[task];
            if ((pool < 0 || state->free[pool] > 0)
                && (place < 0 || is_before(state, task, state->queued[place])))
                place = i;
        }
        if (place < 0)
            return;
        int64_t task = state->queued[place];
        state->queued[place] = state->queued[--state->length[QUEUED]];
        if (layout->takes[task] >= 0)
            state->free[layout->takes[task]]--;
        state->woken[state->length[WOKEN]++] = task;
    }
}

/* Channels: flows that go one after the other, as over one TCP connection.
 *
 * A flow stands in the line of its channel from when it is ready. Its turn comes when all
 * before it have ended. Of those that got ready at one instant the first is the one that
 * serves the lowest iteration, then the one whose edge is first by `JobArrays.rank`. So
 * turns are given when nothing else happens at an instant any more, as slots are.
 *
 * What is handed over within a machine stands in no line, and a flow without bytes does. */

/* True where the flows of `edge` between machines go over a channel. */
static inline bool has_channel(const Layout *layout, int64_t edge)
{
    return layout->channel != NULL && layout->channel[edge] >= 0;
}

static void call(State *state, int64_t channel)
{
    state->lines.calling[state->length[CALLING]++] = channel;
}

/* Let a flow stand in line that is ready now. */
static void join_line(const Layout *layout, State *state, int64_t edge, int64_t iteration,
                      double now)
{
    Lines *lines = &state->lines;
    int64_t turn = iteration + layout->lag[edge], channel = layout->channel[edge];
    int64_t *tally = lines->tally + TALLIES * channel;
    int64_t hole = tally[FIRST] + tally[JOINED];
    while (hole > tally[FIRST] + tally[ADMITTED]) {
        int64_t other = lines->place[2 * (hole - 1) + LINE_EDGE];
        int64_t its_turn = lines->place[2 * (hole - 1) + LINE_TURN];
        if (now - lines->came[hole - 1] > TIE * now || its_turn < turn)
            break;
        if (its_turn == turn && layout->rank[other] < layout->rank[edge])
            break;
        lines->place[2 * hole + LINE_EDGE] = other;
        lines->place[2 * hole + LINE_TURN] = its_turn;
        lines->came[hole] = lines->came[hole - 1];
        hole--;
    }
    lines->place[2 * hole + LINE_EDGE] = edge;
    lines->place[2 * hole + LINE_TURN] = turn;
    lines->came[hole] = now;
    if (tally[JOINED] == tally[LEFT]) /* the line was empty */
        call(state, channel);
    tally[JOINED]++;
}

/* Take in that the flow of `edge` whose turn it was has ended. */
static void leave_line(const Layout *layout, State *state, int64_t edge)
{
    int64_t channel = layout->channel[edge];
    int64_t *tally = state->lines.tally + TALLIES * channel;
    tally[LEFT]++;
    if (tally[JOINED] > tally[LEFT])
        call(state, channel);
}

/* Let the first flow in the line of every free channel become active. To be called when
 * nothing else happens at this instant any more. */
static void give_turns(State *state)
{
    for (int64_t i = 0; i < state->length[CALLING]; i++) {
        int64_t *tally = state->lines.tally + TALLIES * state->lines.calling[i];
        int64_t first = tally[FIRST] + tally[ADMITTED];
        state->waiting[state->length[WAITING]++] = state->lines.place[2 * first + LINE_EDGE];
        tally[ADMITTED]++;
    }
    state->length[CALLING] = 0;
}

static inline void wake(State *state, int64_t task)
{
    state->woken[state->length[WOKEN]++] = task;
}

/* Count what the next iteration of `task` still needs. */
static inline void await_inputs(const Layout *layout, State *state, int64_t task)
{
    int64_t iteration = state->started[task], missing = 0;
    for (int64_t i = layout->in_start[task]; i < layout->in_start[task + 1]; i++)
        missing += state->allowed[layout->in_edge[i]] <= iteration;
    state->missing[task] = missing;
}

/* Wake every task whose first iteration needs nothing. */
static void begin(const Layout *layout, State *state)
{
    for (int64_t task = 0; task < layout->tasks; task++) {
        await_inputs(layout, state, task);
        if (state->missing[task] == 0)
            wake(state, task);
    }
}

/* Let the destination of `edge` have its next iteration, which `landed` counts. */
static inline void hand_over(const Layout *layout, State *state, int64_t edge)
{
    int64_t task = layout->destination[edge];
    state->allowed[edge]++;
    if (state->allowed[edge] == state->started[task] + 1) {
        state->missing[task]--;
        if (state->missing[task] == 0 && state->started[task] == state->ended[task])
            wake(state, task);
    }
    if (state->landed[edge] == layout->sent[edge])
        state->allowed[edge] = layout->iterations;
}

/* Take in that the next iteration of `edge` is sent: it is there at once or, behind those
 * before it, after its latency. */
static inline void deliver(const Layout *layout, State *state, int64_t edge, double now)
{
    double latency = latency_of(layout, edge);
    state->delivered[edge]++;
    if (latency > 0.0) {
        if (state->landed[edge] + 1 == state->delivered[edge])
            push(state->landing, state->landing_edge, state->length[LANDINGS]++, now + latency,
                 edge);
        return;
    }
    if (layout->latency != NULL) /* else `landed` is `delivered` */
        state->landed[edge]++;
    hand_over(layout, state, edge);
}

/* When the next flow lands, infinity if none is on its way. */
static inline double next_landing(const State *state)
{
    return state->length[LANDINGS] > 0 ? state->landing[0] : INFINITY;
}

/* Hand over what lands by `instant`; return true where anything does.
 *
 * Flows of an edge land in their order, so only the first of them is on the heap. When the
 * next one lands follows from when it was served, which the log has. */
static bool land(const Layout *layout, State *state, double instant)
{
    bool landed = false;
    while (next_landing(state) <= instant) {
        int64_t edge = state->landing_edge[0], next = ++state->landed[edge];
        if (next < state->delivered[edge]) {
            double served = state->log.flow_end[edge * layout->iterations + next];
            replace(state->landing, state->landing_edge, state->length[LANDINGS],
                    served + latency_of(layout, edge), edge);
        } else {
            pop(state->landing, state->landing_edge, state->length[LANDINGS]--);
        }
        hand_over(layout, state, edge);
        landed = true;
    }
    return landed;
}

/* Let a flow that is ready wait for those before it, on its channel or its edge. */
static inline void await_turn(const Layout *layout, State *state, int64_t edge,
                              int64_t iteration, double now)
{
    if (has_channel(layout, edge))
        join_line(layout, state, edge, iteration, now);
    else if (state->ready[edge] == state->delivered[edge] + 1)
        state->waiting[state->length[WAITING]++] = edge;
}

static inline void note(double *log, int64_t row, int64_t iterations, int64_t iteration,
                        double now)
{
    if (log != NULL)
        log[row * iterations + iteration] = now;
}

/* Take in that the running iteration of `task` ended. */
static inline void end_task(const Layout *layout, State *state, int64_t task, double now)
{
    int64_t iteration = state->ended[task]++, columns = layout->iterations;
    const Log *log = &state->log;
    note(log->task_end, task, columns, iteration, now);
    if (layout->pools > 0 && layout->frees[task] >= 0)
        state->free[layout->frees[task]]++;
    if (state->started[task] < layout->rounds[task] && state->missing[task] == 0)
        wake(state, task);
    for (int64_t i = layout->out_start[task]; i < layout->out_start[task + 1]; i++) {
        int64_t edge = layout->out_edge[i];
        if (iteration >= layout->sent[edge])
            continue;
        state->ready[edge]++;
        note(log->flow_ready, edge, columns, iteration, now);
        if (layout->group[edge] < 0) {
            note(log->flow_start, edge, columns, iteration, now);
            note(log->flow_end, edge, columns, iteration, now);
            deliver(layout, state, edge, now);
        } else {
            await_turn(layout, state, edge, iteration, now);
        }
    }
}

/* Take in that the present flow of `edge` ended. */
static inline void end_flow(const Layout *layout, State *state, int64_t edge, double now)
{
    note(state->log.flow_end, edge, layout->iterations, state->delivered[edge], now);
    deliver(layout, state, edge, now);
    if (has_channel(layout, edge))
        leave_line(layout, state, edge);
    else if (state->ready[edge] > state->delivered[edge])
        state->waiting[state->length[WAITING]++] = edge;
}

/* Have every byte there as soon as the fluid has served it, from now on. */
static void all_arrived(const Layout *layout, State *state)
{
    for (int64_t edge = 0; edge < layout->edges; edge++)
        state->arrived[edge] = layout->iterations;
}

/* Take in that the last byte of the present flow of `edge` is there. True where that ends
 * the flow: its fluid has ended before. */
static bool arrive(const Layout *layout, State *state, int64_t edge, double now)
{
    state->arrived[edge] = state->delivered[edge] + 1;
    if (state->served[edge] <= state->delivered[edge])
        return false;
    end_flow(layout, state, edge, now);
    return true;
}

static inline void end_first_fluids(const Layout *layout, State *state, int64_t group,
                                    double now, double step)
{
    Fluid *fluid = state->fluid + group;
    double mark = fluid->mark;
    if (layout->by_port)
        leave_clock(layout, state, group, now);
    if (step > 0.0) {
        advance(fluid, now);
        mark = larger(mark, fluid->service);
    }
    fluid->service = mark;
    fluid->since = now;
    while (fluid->active > 0 && fluid->mark <= mark * (1.0 + TIE)) {
        int64_t edge = close_first(layout, state, group, now);
        state->gone[state->length[GONE]++] = edge;
        state->served[edge] = state->delivered[edge] + 1;
        if (state->arrived[edge] > state->delivered[edge])
            end_flow(layout, state, edge, now);
    }
}

/* List the groups on clocks of ports of which a flow ends by `instant`; return how many. */
static int64_t list_ending(const Layout *layout, State *state, double instant)
{
    const PortClocks *clocks = &state->clocks;
    int64_t ending = 0;
    for (int64_t port = 0; port < layout->ports; port++) {
        double reached = reached_goal(state, port, instant);
        if (reached < 0.0)
            continue;
        int64_t first = layout->port_start[port];
        for (int64_t i = first; i < first + clocks->clock[port].groups; i++) {
            int64_t group = clocks->member[i];
            if (clocks->goal[i] <= reached)
                push(state->ending, state->ending_group, ending++, (double)group, group);
        }
    }
    return ending;
}

/* Take flows whose mark is reached by `instant` out of the network, and ties.
 *
 * Their edges are appended to state.gone, which the caller empties. Those that have not
 * arrived keep their destination waiting, and the next flow of their edge. With a `step`
 * above 0 the mark may have been passed since the step before. */
static inline void end_fluids(const Layout *layout, State *state, double instant, double now,
                              double step)
{
    int64_t ending = 0, present = state->length[PRESENT];
    if (layout->by_port)
        ending = list_ending(layout, state, instant);
    for (int64_t first = 0; first < present && !layout->by_port; first += BLOCK) {
        if (state->soonest[first / BLOCK] > instant)
            continue;
        for (int64_t place = first; place < at_most(first + BLOCK, present); place++) {
            int64_t group = state->present[place];
            if (state->finish[place] <= instant)
                push(state->ending, state->ending_group, ending++, (double)group, group);
        }
    }
    for (; ending > 0; ending--) {
        end_first_fluids(layout, state, state->ending_group[0], now, step);
        pop(state->ending, state->ending_group, ending);
    }
}

/* True where all flows have arrived whose fluids end by that instant. */
static bool all_known(const Layout *layout, const State *state, double instant)
{
    for (int64_t edge = 0; edge < layout->edges; edge++)
        if (state->served[edge] > state->delivered[edge])
            return false;
    for (int64_t i = 0; i < state->length[PRESENT]; i++) {
        int64_t group = state->present[i], first = layout->slot[group];
        bool ends = 0.0 <= state->finish[i] && state->finish[i] <= instant;
        if (layout->by_port)
            ends = ends_by_port(layout, state, group, instant);
        if (!ends)
            continue;
        double ties = state->fluid[group].mark * (1.0 + TIE);
        for (int64_t place = first; place < first + state->fluid[group].active; place++) {
            int64_t edge = state->mark_edge[place];
            if (state->mark[place] <= ties && state->arrived[edge] <= state->delivered[edge])
                return false;
        }
    }
    return true;
}

/* Make the next flow of every waiting edge active; end those without bytes. */
static inline void open_waiting(const Layout *layout, State *state, const double *volumes,
                                double now)
{
    int64_t columns = layout->iterations;
    for (int64_t i = 0; i < state->length[WAITING]; i++) {
        int64_t edge = state->waiting[i];
        while (state->ready[edge] > state->delivered[edge]) {
            int64_t iteration = state->delivered[edge];
            double volume = volumes[edge * columns + iteration];
            note(state->log.flow_start, edge, columns, iteration, now);
            if (volume > 0.0) {
                open_flow(layout, state, edge, volume, now);
                state->opened[state->length[OPENED]++] = edge;
                break;
            }
            note(state->log.flow_end, edge, columns, iteration, now);
            deliver(layout, state, edge, now);
            if (has_channel(layout, edge)) {
                leave_line(layout, state, edge);
                break;
            }
        }
    }
    state->length[WAITING] = 0;
}

/* Decide what `task` reads in the iteration that starts now. */
static void read_newest(const Layout *layout, State *state, int64_t task)
{
    for (int64_t i = layout->in_start[task]; i < layout->in_start[task + 1]; i++) {
        int64_t edge = layout->in_edge[i];
        if (layout->latest[edge])
            state->log.reads[edge * layout->iterations + state->started[task]] =
                state->landed[edge] - 1;
    }
}

static inline void start_woken(const Layout *layout, State *state, double now)
{
    for (int64_t i = 0; i < state->length[WOKEN]; i++) {
        int64_t task = state->woken[i];
        note(state->log.task_start, task, layout->iterations, state->started[task], now);
        if (layout->latest != NULL)
            read_newest(layout, state, task);
        state->started[task]++;
        await_inputs(layout, state, task);
        state->begun[state->length[BEGUN]++] = task;
    }
    state->length[WOKEN] = 0;
}

/* Open the flows and start the tasks that the ends of this instant allow. They are
 * appended to state.opened and state.begun, which the caller empties. */
static inline void settle(const Layout *layout, State *state, const double *volumes,
                          double now)
{
    open_waiting(layout, state, volumes, now);
    if (layout->last != NULL)
        queue_up(layout, state, now);
    start_woken(layout, state, now);
}

/* Start the tasks that get a slot; return true where there are any.
 *
 * To be called when nothing else happens at this instant any more: all that come at one
 * instant are known then. Those that waited for that alone, to read the newest, start as
 * well. */
static bool grant_slots(const Layout *layout, State *state, double now)
{
    grant(layout, state);
    bool granted = state->length[WOKEN] > 0;
    start_woken(layout, state, now);
    return granted;
}
