/* Machines that stand still or are slow for a time: when work is done by then.
 *
 * A machine has a share of its speed from each of its steps on. A task that needs `work`
 * seconds at full speed ends when the shares since its start sum up to that. Written out in
 * Python: `emu.problem.changes.end_of_work`, to the last bit. */

/* The last step of `machine` that begins by `now`; the first one begins at 0. */
static inline int64_t step_at(const Speeds *speeds, int64_t machine, double now)
{
    int64_t low = speeds->start[machine], high = speeds->start[machine + 1];
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (speeds->time[middle] <= now)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static double end_on(const Speeds *speeds, int64_t machine, double now, double work)
{
    if (work <= 0.0)
        return now;
    int64_t last = speeds->start[machine + 1] - 1;
    for (int64_t step = step_at(speeds, machine, now);; step++) {
        double share = speeds->share[step];
        double until = step < last ? speeds->time[step + 1] : INFINITY;
        if (share > 0.0) {
            double end = now + work / share;
            if (end <= until * (1.0 + TIE))
                return end;
            work -= share * (until - now);
        } else if (step == last) {
            return INFINITY;
        }
        now = until;
    }
}

/* When the iteration of `task` that starts now ends, which needs `work` seconds. */
static inline double end_of_work(const Layout *layout, int64_t task, double now, double work)
{
    if (layout->machine == NULL || layout->machine[task] < 0)
        return now + work;
    return end_on(&layout->speeds, layout->machine[task], now, work);
}
