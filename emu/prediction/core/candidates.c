/* Costs of candidate placements: bounds, penalty, makespan.
 *
 * Everything is a function of `Candidates` and of one placement, so that a search keeps
 * no state that could drift. Cost (21) and capacities (2) of DGTP (INFOCOM 2022).
 */
#include "candidates.h"
#include "room.c"

#define NORM_HALVINGS 4 /* NORM of candidates.py is 2^4 */

static Work carved(const Candidates *c, Room room)
{
    const JobArrays *a = c->arrays;
    int64_t units = c->units.count, resources = c->units.resources;
    Work w;
    w.port = taken(&room, a->ports, sizeof *w.port, true);
    w.bounds = numbers(&room, a->ports);
    w.crossed = integers(&room, a->edges);
    w.hop = integers(&room, a->edges * a->routes.longest);
    w.taken = numbers(&room, a->edges);
    w.times = numbers(&room, 2 * a->tasks);
    w.end = numbers(&room, 2 * a->tasks);
    w.ends_of = numbers(&room, a->tasks);
    w.used = numbers(&room, a->machines * resources);
    w.left = numbers(&room, 2 * resources);
    w.last = numbers(&room, c->costs.jobs);
    w.machine_of = integers(&room, a->tasks);
    w.available = integers(&room, a->machines);
    w.kept = integers(&room, a->machines * a->names);
    w.candidate = integers(&room, units);
    w.chosen = integers(&room, units);
    w.now = integers(&room, units);
    w.room = room;
    return w;
}

/* Carve the room of the candidates up. */
Work work_of(const Candidates *c)
{
    return carved(c, c->room);
}

int64_t room_of_candidates(const Candidates *c)
{
    Work w = carved(c, (Room){NULL, NULL});
    return (int64_t)(uintptr_t)w.room.at + room_of_run(c->arrays, c->costs.jobs > 0);
}

/* Fill the end of every (task, iteration), 0 of those that are not there; every
 * transfer of an edge takes as long as its entry of `taken`, seconds. */
static void earliest_ends(const JobArrays *a, const double *times, int64_t iterations,
                          const double *taken, double *end)
{
    memset(end, 0, sizeof(double) * (size_t)(a->tasks * iterations));
    for (int64_t n = 0; n < iterations; n++)
        for (int64_t place = 0; place < a->tasks; place++) {
            int64_t j = a->order[place];
            if (n >= a->rounds[j])
                continue;
            double start = n > 0 ? end[j * iterations + n - 1] : 0.0;
            for (int64_t i = a->in_start[j]; i < a->in_start[j + 1]; i++) {
                int64_t edge = a->in_edge[i], sent = n - a->lag[edge];
                if (sent >= 0 && sent < a->sent[edge]) {
                    double came = end[a->source[edge] * iterations + sent];
                    start = larger(start, came + taken[edge]);
                }
            }
            end[j * iterations + n] = start + times[j * iterations + n];
        }
}

/* Fill the machine of every task for units on `machines`. */
const int64_t *expand(const Candidates *c, const int64_t *machines, int64_t *machine_of)
{
    const Units *u = &c->units;
    memcpy(machine_of, u->fixed, sizeof(int64_t) * (size_t)c->arrays->tasks);
    for (int64_t unit = 0; unit < u->count; unit++)
        for (int64_t i = u->unit_start[unit]; i < u->unit_start[unit + 1]; i++)
            machine_of[u->unit_task[i]] = machines[unit];
    return machine_of;
}

/* Fill the summed demands on every machine, (machines, resources). */
void usage(const Candidates *c, const int64_t *machines, double *used)
{
    const Units *u = &c->units;
    int64_t resources = u->resources;
    for (int64_t i = 0; i < c->arrays->machines * resources; i++)
        used[i] = u->used[i];
    for (int64_t unit = 0; unit < u->count; unit++)
        for (int64_t r = 0; r < resources; r++)
            used[machines[unit] * resources + r] += u->demand[unit * resources + r];
}

/* Return the violated part of all capacities, the sum in cost (21); 0: feasible. */
double excess(const Candidates *c, const double *used)
{
    double total = 0.0;
    for (int64_t i = 0; i < c->arrays->machines * c->units.resources; i++) {
        double capacity = c->units.capacity[i], over = used[i] - capacity;
        if (over > capacity * TOLERANCE)
            total += capacity > 0.0 ? over / capacity : INFINITY;
    }
    return total;
}

/* Return the seconds from when a flow was served to when its destination has it. */
static double latency_between(const JobArrays *a, int64_t source, int64_t destination)
{
    int64_t first, end;
    double latency = 0.0;
    if (a->latency == NULL)
        return latency;
    route_between(&a->routes, source, destination, &first, &end);
    for (int64_t i = first; i < end; i++)
        latency += a->latency[port_at(&a->routes, i, source, destination)];
    return latency;
}

/* Fill the makespan that every port asks for, seconds; 0 where it sends nothing.
 *
 * The bytes of a port need their time, its first flow cannot come before its head, and
 * after its last flow comes at least the shortest tail. */
static void port_bounds(const Candidates *c, const int64_t *machine_of, Work *w)
{
    const JobArrays *a = c->arrays;
    const Transfers *t = &c->transfers;
    for (int64_t port = 0; port < a->ports; port++)
        w->port[port] = (PortUse){.load = 0.0, .head = INFINITY, .tail = INFINITY};
    for (int64_t edge = 0; edge < a->edges; edge++) {
        w->crossed[edge] = 0;
        if (t->sent[edge] <= 0.0)
            continue;
        int64_t source = machine_of[a->source[edge]];
        int64_t destination = machine_of[a->destination[edge]], first, end;
        route_between(&a->routes, source, destination, &first, &end);
        double tail = t->tail[edge] + latency_between(a, source, destination);
        double bytes = t->sent[edge], head = t->head[edge];
        int64_t *hop = w->hop + edge * a->routes.longest;
        w->crossed[edge] = end - first;
        for (int64_t i = first; i < end; i++) {
            int64_t port = port_at(&a->routes, i, source, destination);
            PortUse *use = w->port + port;
            use->load += bytes;
            use->head = smaller(use->head, head);
            use->tail = smaller(use->tail, tail);
            *hop++ = port;
        }
    }
    for (int64_t port = 0; port < a->ports; port++) {
        const PortUse *use = w->port + port;
        w->bounds[port] =
            use->load > 0.0 ? use->head + use->load / t->capacity[port] + use->tail : 0.0;
    }
}

static double most_of(const double *values, int64_t count)
{
    double most = 0.0;
    for (int64_t i = 0; i < count; i++)
        most = larger(most, values[i]);
    return most;
}

/* Extremes over the jobs, of which there is one where only the makespan counts. */
static double least_weight(const JobCosts *k)
{
    double least = k->weight[0];
    for (int64_t job = 1; job < k->jobs; job++)
        least = smaller(least, k->weight[job]);
    return least;
}

static double latest_release(const JobCosts *k)
{
    double latest = k->release[0];
    for (int64_t job = 1; job < k->jobs; job++)
        latest = larger(latest, k->release[job]);
    return latest;
}

/* Return a cost that no schedule of this placement beats, seconds.
 *
 * The cost of several jobs follows from the makespan: the job that ends last costs its
 * weight times all that comes after its release. */
double bound_within(const Candidates *c, const int64_t *machine_of, Work *w)
{
    port_bounds(c, machine_of, w);
    double makespan = larger(c->transfers.least, most_of(w->bounds, c->arrays->ports));
    return least_weight(&c->costs) * (makespan - latest_release(&c->costs));
}

/* Return the cost of a schedule from the end of every task. */
static double cost_of_ends(const JobCosts *k, const double *ends, int64_t tasks,
                           double *last)
{
    memcpy(last, k->release, sizeof(double) * (size_t)k->jobs);
    for (int64_t task = 0; task < tasks; task++)
        last[k->job[task]] = larger(last[k->job[task]], ends[task]);
    double sum = 0.0, most = -INFINITY;
    for (int64_t job = 0; job < k->jobs; job++) {
        double time = k->weight[job] * (last[job] - k->release[job]);
        sum += time;
        most = larger(most, time);
    }
    return k->total ? sum : most;
}

/* Return the makespan if every flow met all others of its ports, seconds.
 *
 * From the first iterations, with mean times; `bounds` hold the seconds of ports. */
static double crowded(const Candidates *c, const int64_t *machine_of, Work *w)
{
    const JobArrays *a = c->arrays;
    for (int64_t edge = 0; edge < a->edges; edge++) {
        w->taken[edge] = 0.0;
        if (w->crossed[edge] == 0)
            continue;
        const int64_t *hop = w->hop + edge * a->routes.longest;
        double busiest = 0.0;
        for (int64_t i = 0; i < w->crossed[edge]; i++)
            busiest = larger(busiest, w->bounds[hop[i]]);
        double latency = latency_between(a, machine_of[a->source[edge]],
                                         machine_of[a->destination[edge]]);
        w->taken[edge] = busiest / (double)a->sent[edge] + latency;
    }
    /* The first iteration fills the pipeline, the second tells what each further one adds. */
    int64_t columns = a->iterations < 2 ? a->iterations : 2;
    for (int64_t task = 0; task < a->tasks; task++)
        for (int64_t n = 0; n < columns; n++)
            w->times[task * columns + n] =
                c->busy[task * a->machines + machine_of[task]] / (double)a->rounds[task];
    earliest_ends(a, w->times, columns, w->taken, w->end);
    double once = 0.0, last = 0.0;
    for (int64_t task = 0; task < a->tasks; task++) {
        once = larger(once, w->end[task * columns]);
        last = larger(last, w->end[task * columns + columns - 1]);
    }
    return once + (double)(a->iterations - 1) * (last - once);
}

static inline double to_the_norm(double part)
{
    for (int i = 0; i < NORM_HALVINGS; i++)
        part *= part;
    return part;
}

/* Return the mean of what ports and tasks ask for, as a norm, and of `crowded`.
 *
 * Seconds, for a hundredth of a simulation's time. Unlike the bound, their maximum, the
 * norm falls when any port that counts gets less to do. It is blind to what waits, by
 * which the best of 1.0 and 1.18 times their makespan differed. */
double estimate_within(const Candidates *c, const int64_t *machine_of, Work *w)
{
    const JobArrays *a = c->arrays;
    port_bounds(c, machine_of, w);
    double most = larger(most_of(w->bounds, a->ports), c->transfers.least), total = 0.0;
    if (most <= 0.0)
        return 0.0;
    for (int64_t port = 0; port < a->ports; port++)
        total += to_the_norm(w->bounds[port] / most);
    for (int64_t task = 0; task < a->tasks; task++)
        total += to_the_norm(c->busy[task * a->machines + machine_of[task]] / most);
    double norm = pow(total, 1.0 / (1 << NORM_HALVINGS));
    return (most * norm + crowded(c, machine_of, w)) / 2.0;
}

/* Return whether no limited pool gets back more slots than are taken of it. */
static bool balanced(const JobArrays *a, const int64_t *machine_of, int64_t *kept)
{
    int64_t pools = a->machines * a->names;
    for (int64_t pool = 0; pool < pools; pool++)
        kept[pool] = 0;
    for (int64_t task = 0; task < a->tasks; task++) {
        int64_t *here = kept + machine_of[task] * a->names;
        if (a->taken[task] >= 0)
            here[a->taken[task]] += a->rounds[task];
        if (a->freed[task] >= 0)
            here[a->freed[task]] -= a->rounds[task];
    }
    for (int64_t pool = 0; pool < pools; pool++)
        if (a->slots[pool] >= 0 && kept[pool] < 0)
            return false;
    return true;
}

/* Return makespan or cost, seconds; beyond `limit` that or infinity.
 *
 * Infinity too where tasks wait for slots forever, or more are given back than taken. */
double cost_within(const Candidates *c, const int64_t *machine_of, double limit,
                   Work *w)
{
    const JobArrays *a = c->arrays;
    if (a->names > 0 && !balanced(a, machine_of, w->kept))
        return INFINITY;
    if (c->costs.jobs == 0) {
        double makespan = run_makespan(a, machine_of, c->times, c->volumes, limit,
                                       w->room);
        return isnan(makespan) ? INFINITY : makespan;
    }
    /* As `bound_within` read backwards: with a later end the cost is beyond the limit. */
    double longest = limit / least_weight(&c->costs) + latest_release(&c->costs);
    run_ends(a, machine_of, c->times, c->volumes, longest, w->room, w->ends_of);
    return cost_of_ends(&c->costs, w->ends_of, a->tasks, w->last);
}

/* The same for Python. */
double lower_bound(const Candidates *c, const int64_t *machine_of)
{
    Work w = work_of(c);
    return bound_within(c, machine_of, &w);
}

/* Return a cost that no schedule beats wherever the tasks on machine -1 stand, seconds.
 *
 * The bytes between the others take their time at every port; what comes before and
 * after them may be of flows that nobody knows yet. */
double settled_bound(const Candidates *c, const int64_t *machine_of)
{
    Work w = work_of(c);
    const JobArrays *a = c->arrays;
    memset(w.bounds, 0, sizeof(double) * (size_t)a->ports);
    for (int64_t edge = 0; edge < a->edges; edge++) {
        int64_t source = machine_of[a->source[edge]];
        int64_t destination = machine_of[a->destination[edge]], first, end;
        double bytes = c->transfers.sent[edge];
        if (bytes <= 0.0 || source < 0 || destination < 0)
            continue;
        route_between(&a->routes, source, destination, &first, &end);
        for (int64_t i = first; i < end; i++) {
            int64_t port = port_at(&a->routes, i, source, destination);
            w.bounds[port] += bytes / c->transfers.capacity[port];
        }
    }
    double makespan = most_of(w.bounds, a->ports);
    return least_weight(&c->costs) * (makespan - latest_release(&c->costs));
}

double estimate(const Candidates *c, const int64_t *machine_of)
{
    Work w = work_of(c);
    return estimate_within(c, machine_of, &w);
}

double placement_cost(const Candidates *c, const int64_t *machine_of, double limit)
{
    Work w = work_of(c);
    /* A rule of one's own is asked: that it fails must show. */
    bool asks = c->arrays->policy == OWN;
    if (!asks && bound_within(c, machine_of, &w) > limit * (1.0 + ROUNDING))
        return INFINITY;
    return cost_within(c, machine_of, limit, &w);
}
