/* Quotas that follow the queue of another pool, see emu/problem/cluster.py. */

static inline double tuning_time(const Layout *layout, const State *state, int64_t tuner)
{
    return layout->tuners.period[tuner] * (double)(state->tunings[tuner] + 1);
}

/* When a quota is looked at next, infinity if none is. */
static inline double next_tuning(const Layout *layout, const State *state)
{
    double next = INFINITY;
    for (int64_t tuner = 0; tuner < layout->tuners.count; tuner++)
        next = smaller(next, tuning_time(layout, state, tuner));
    return next;
}

/* The quota by the slope of the last samples, of which `newest` is at its place. */
static int64_t tuned_quota(const int64_t *samples, int64_t newest, int64_t quota,
                           int64_t most)
{
    int64_t slope = 0; /* times 10 */
    for (int64_t i = 0; i < SAMPLES; i++)
        slope += (i - SAMPLES / 2) * samples[(newest + 1 + i) % SAMPLES];
    if (newest + 1 < SAMPLES || slope == 0)
        return quota;
    return slope > 0 ? at_least(9 * quota / 10, 1) : at_most((11 * quota + 9) / 10, most);
}

/* Look at the quotas that are due by `instant`; return true where there are any.
 *
 * To be called when nothing else happens at this instant and every slot is granted: who
 * still waits then waits for longer. Below 0 the free slots are those to be withdrawn. */
static inline bool tune(const Layout *layout, State *state, double instant)
{
    const Tuners *tuners = &layout->tuners;
    bool due = false;
    for (int64_t tuner = 0; tuner < tuners->count; tuner++) {
        if (tuning_time(layout, state, tuner) > instant)
            continue;
        due = true;
        int64_t number = state->tunings[tuner]++, waiting = 0;
        int64_t *samples = state->samples + SAMPLES * tuner, *quota = state->quota + tuner;
        for (int64_t i = 0; i < state->length[QUEUED]; i++)
            waiting += layout->takes[state->queued[i]] == tuners->watched[tuner];
        samples[number % SAMPLES] = waiting;
        int64_t stated = number < tuners->rows ? tuners->path[number * tuners->count + tuner] : 0;
        int64_t before = *quota;
        *quota = stated > 0 ? stated
                            : tuned_quota(samples, number, before, tuners->most[tuner]);
        state->free[tuners->tuned[tuner]] += *quota - before;
        if (number < state->log.tuning_room)
            state->log.quotas[number * tuners->count + tuner] = *quota;
    }
    return due;
}
