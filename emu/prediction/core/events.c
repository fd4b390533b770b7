/* The event loop: virtual time drives the scheduler; and makespans for searches. */

static void record(const Layout *layout, const State *state, RateRecord *recorder, double now)
{
    if (recorder == NULL || !recorder->counts)
        return;
    RateChanges *board = &recorder->board;
    int64_t changed = changed_segments(layout, state, board, now);
    for (int64_t i = 0; i < changed; i++) {
        /* Counted without room, too: so the first of two runs learns how much it takes. */
        int64_t row = recorder->rows++;
        if (row < recorder->room) {
            int64_t edge = board->edge[i];
            recorder->time[row] = now;
            recorder->edge[row] = edge;
            recorder->iteration[row] = board->iteration[edge];
            recorder->rate[row] = board->rate[edge];
        }
    }
}

/* Put the tasks that begin now on the heap; return how many then run. */
static inline int64_t start_tasks(const Layout *layout, State *state, const double *times,
                                  int64_t running, double now)
{
    for (int64_t i = 0; i < state->length[BEGUN]; i++) {
        int64_t task = state->begun[i];
        double time = times[task * layout->iterations + state->started[task] - 1];
        double end = end_of_work(layout, task, now, time);
        push(state->due, state->due_task, running++, end, task);
    }
    state->length[BEGUN] = 0;
    state->length[OPENED] = 0;
    return running;
}

static double checked(const Layout *layout, const State *state, double makespan)
{
    for (int64_t task = 0; task < layout->tasks; task++)
        if (state->ended[task] < layout->rounds[task])
            return NAN;
    return makespan;
}

#if defined(__SANITIZE_ADDRESS__)
/* Stop where the state is not what it must be; with a step ends come late by right. */
static void check_state(const Layout *layout, const State *state, double step, double now)
{
    int64_t item = -1;
    const char *sentence =
        step > 0.0 ? NULL : broken_invariant(layout, state, now, false, &item);
    if (sentence == NULL)
        return;
    fprintf(stderr, "at %g s this does not hold: %s: %lld\n", now, sentence, (long long)item);
    abort();
}
#else
#define check_state(layout, state, step, now) ((void)0)
#endif

/* Run the schedule to its end; return the time of the last task's end.
 *
 * With a `step` above 0 things happen only at multiples of it. Returns infinity as soon as
 * the next event lies beyond `limit`, and NaN when tasks are left that nothing would ever
 * start.
 *
 * Within an instant the order is no accident. Its ends may enable one another without time
 * going on (gates, local handoffs, tasks of no length), so rates are set only once it is
 * empty. Turns and slots go after all its ends, whichever came first in the arrays: who is
 * served must not depend on the order in a file. Fluids end before capacities change,
 * since what ended now had the old ones; and changes and tunings to come are looked at
 * last, so that they never keep a finished job going. Flows that stand still, over a link
 * that is cut, wait for the next change. */
double run(const Layout *layout, State *state, const double *times, const double *volumes,
           double limit, double step, RateRecord *recorder)
{
    int64_t running = 0;
    double now = 0.0, makespan = 0.0;
    begin(layout, state);
    all_arrived(layout, state);
    for (;;) {
        settle(layout, state, volumes, now);
        running = start_tasks(layout, state, times, running, now);
        double instant = now * (1.0 + TIE);
        if (land(layout, state, instant)) /* after a latency that is too short to count */
            continue;
        if (running == 0 || state->due[0] > instant) { /* nothing more happens now */
            if (state->length[CALLING] > 0) {
                give_turns(state);
                continue;
            }
            if (state->length[QUEUED] > 0 && grant_slots(layout, state, now)) {
                running = start_tasks(layout, state, times, running, now);
                continue;
            }
            if (tune(layout, state, instant))
                continue;
            set_rates(layout, state, now);
            record(layout, state, recorder, now);
            check_state(layout, state, step, now);
            double flow_end = next_end(layout, state);
            now = running > 0 ? smaller(flow_end, state->due[0]) : flow_end;
            now = smaller(now, next_landing(state));
            if (now == INFINITY
                && (next_change(layout, state) == INFINITY || state->length[PRESENT] == 0))
                return checked(layout, state, makespan);
            now = smaller(now, next_change(layout, state));
            now = smaller(now, next_tuning(layout, state));
            now = smaller(now, state->demotion);
            if (step > 0.0)
                /* Rounding must not push what ends with a slot into the next one. */
                now = step * ceil(now / step * (1.0 - TIE));
            if (now > limit)
                return INFINITY;
            instant = now * (1.0 + TIE);
            if (flow_end <= instant) {
                state->length[GONE] = 0;
                end_fluids(layout, state, instant, now, step);
            }
            change_capacities(layout, state, instant);
            change_queues(state, instant);
            land(layout, state, instant);
        }
        while (running > 0 && state->due[0] <= instant) {
            int64_t task = state->due_task[0];
            pop(state->due, state->due_task, running--);
            end_task(layout, state, task, now);
            makespan = now;
        }
    }
}

/* Makespans for search: arrays made once, then many placements. */

/* What `run_makespan` takes out of its room beside layout and state. */
typedef struct {
    double *times;             /* that the machines of the placement take */
    double *mean_times, *mean_volumes;
    double *from_task, *after; /* see `longest_paths`; where the policy looks ahead */
    Log log;
} Extras;

static bool looks_ahead(const JobArrays *job)
{
    return job->policy == OES_CP || job->policy == WEIGHTED_MAXMIN;
}

static void take_extras(const JobArrays *job, bool ends, Room *room, Extras *extras)
{
    int64_t task_cells = job->tasks * job->iterations;
    int64_t edge_cells = job->edges * job->iterations;
    memset(extras, 0, sizeof *extras);
    extras->times = numbers(room, task_cells);
    if (looks_ahead(job)) {
        extras->mean_times = numbers(room, job->tasks);
        extras->mean_volumes = numbers(room, job->edges);
        extras->from_task = numbers(room, task_cells);
        extras->after = numbers(room, edge_cells);
    }
    if (job->policy == FIFO)
        extras->log.flow_ready = numbers(room, edge_cells);
    if (job->latency != NULL)
        extras->log.flow_end = numbers(room, edge_cells);
    if (job->latest != NULL)
        extras->log.reads = integers(room, edge_cells);
    if (ends)
        extras->log.task_end = numbers(room, task_cells);
}

int64_t room_of_run(const JobArrays *job, bool ends)
{
    Room room = {NULL, NULL};
    Layout layout;
    State state;
    Extras extras;
    measure_layout(job, &room, &layout);
    take_extras(job, ends, &room, &extras);
    new_state_in(&layout, &room, &state);
    return (int64_t)(uintptr_t)room.at;
}

/* Set the times that the machines of a placement take. */
static void set_times(const JobArrays *job, const int64_t *machine_of,
                      const double *reference, double *times)
{
    for (int64_t task = 0; task < job->tasks; task++) {
        double slowness = 1.0;
        if (job->slowness != NULL)
            slowness = job->slowness[task * job->machines + machine_of[task]];
        for (int64_t i = task * job->iterations; i < (task + 1) * job->iterations; i++)
            times[i] = reference[i] * slowness;
    }
}

static double run_in(const JobArrays *job, const int64_t *machine_of,
                     const double *reference, const double *volumes, double limit, Room room,
                     bool ends, State *state)
{
    Layout layout;
    Extras extras;
    lay_out_in(job, machine_of, &room, &layout);
    take_extras(job, ends, &room, &extras);
    set_times(job, machine_of, reference, extras.times);
    if (looks_ahead(job)) {
        /* Of the times that this placement takes: paths are longer over slow machines. */
        means(extras.times, job->tasks, job->iterations, job->rounds, extras.mean_times);
        means(volumes, job->edges, job->iterations, job->sent, extras.mean_volumes);
        longest_paths(&layout, extras.mean_times, extras.mean_volumes, 1, extras.from_task,
                      extras.after);
    }
    new_state(&layout, extras.after, room, state);
    state->log = extras.log;
    return run(&layout, state, extras.times, volumes, limit, 0.0, NULL);
}

double run_makespan(const JobArrays *job, const int64_t *machine_of,
                    const double *reference, const double *volumes, double limit, Room room)
{
    State state;
    return run_in(job, machine_of, reference, volumes, limit, room, false, &state);
}

void run_ends(const JobArrays *job, const int64_t *machine_of, const double *reference,
              const double *volumes, double limit, Room room, double *ends)
{
    State state;
    double end = run_in(job, machine_of, reference, volumes, limit, room, true, &state);
    for (int64_t task = 0; task < job->tasks; task++) {
        int64_t last = task * job->iterations + job->rounds[task] - 1;
        /* False of NaN as well: what hangs never ends. */
        ends[task] = end < INFINITY ? state.log.task_end[last] : INFINITY;
    }
}
