/* The Markov chain of ETP, DGTP (INFOCOM 2022), Algorithm 3, equations (21)-(23).
 *
 * One call walks over many proposals. The random numbers come in, so that the same chain
 * can be walked with and without the tricks, in pieces, and on any number of cores. */
#include "candidates.h"

#define FNV_PRIME UINT64_C(1099511628211)
#define FNV_BASIS UINT64_C(14695981039346656037)

/* Return where `machines` stands, or the empty place where it would; -1: full. */
int64_t place_of(const Memory *m, const int64_t *machines, int64_t units)
{
    if (m->places == 0)
        return -1;
    uint64_t code = FNV_BASIS;
    for (int64_t unit = 0; unit < units; unit++)
        code = (code ^ (uint64_t)(machines[unit] + 1)) * FNV_PRIME;
    /* The low bits of FNV-1a mix badly: fold the high ones in. */
    int64_t place = (int64_t)((code ^ (code >> 32)) & (uint64_t)(m->places - 1));
    while (!isnan(m->low[place])) {
        const int16_t *there = m->machines + place * units;
        int64_t unit = 0;
        while (unit < units && there[unit] == machines[unit])
            unit++;
        if (unit == units)
            return place;
        place = (place + 1) & (m->places - 1);
    }
    return 2 * *m->held < m->places ? place : -1;
}

/* Note at `place`, found by `place_of`, that the makespan is in [low, high]. */
void remember(const Memory *m, int64_t place, const int64_t *machines, int64_t units,
              double low, double high)
{
    if (place < 0)
        return;
    if (isnan(m->low[place])) {
        ++*m->held;
        for (int64_t unit = 0; unit < units; unit++)
            m->machines[place * units + unit] = (int16_t)machines[unit];
        m->low[place] = low;
        m->high[place] = high;
        return;
    }
    m->low[place] = larger(m->low[place], low);
    m->high[place] = smaller(m->high[place], high);
}

/* Return the makespan, or infinity where that is spared and exceeds `limit`.
 *
 * A run that is remembered, stopped, or never begun because a bound exceeds the limit,
 * would have ended as remembered or beyond the limit: a comparison with the limit has
 * the same result. */
double makespan_within(const Candidates *c, const int64_t *machines, double limit,
                       bool simulate_all, Chain *chain, Work *w)
{
    const Memory *m = &chain->memory;
    double stop = simulate_all ? INFINITY : limit * (1.0 + ROUNDING);
    int64_t place = simulate_all ? -1 : place_of(m, machines, c->units.count);
    if (place >= 0) {
        if (m->low[place] == m->high[place])
            return m->high[place];
        if (m->low[place] > stop)
            return INFINITY;
    }
    const int64_t *machine_of = expand(c, machines, w->machine_of);
    if (!simulate_all && bound_within(c, machine_of, w) > stop)
        return INFINITY;
    chain->tally[SIMULATED]++;
    double makespan = cost_within(c, machine_of, stop, w);
    remember(m, place, machines, c->units.count, smaller(makespan, stop), makespan);
    return makespan;
}

/* Note that the placement now is the best so far. */
void keep_best(const Candidates *c, Chain *chain, double makespan)
{
    chain->cost[1] = makespan;
    memcpy(chain->best_machines, chain->machines,
           sizeof(int64_t) * (size_t)c->units.count);
}

/* Return a machine drawn from M_avail of `unit`, or -1 when it is empty. */
static int64_t target_of(const Candidates *c, int64_t unit, int64_t now, double mu,
                         double draw, Work *w)
{
    const Units *u = &c->units;
    int64_t resources = u->resources, count = 0;
    for (int64_t machine = 0; machine < c->arrays->machines; machine++) {
        bool fits = machine != now;
        for (int64_t r = 0; r < resources && fits; r++) {
            int64_t cell = machine * resources + r;
            double room = (1.0 + mu) * u->capacity[cell] * (1.0 + TOLERANCE);
            fits = w->used[cell] + u->demand[unit * resources + r] <= room;
        }
        if (fits)
            w->available[count++] = machine;
    }
    return count ? w->available[(int64_t)(draw * (double)count)] : -1;
}

/* Try to move a unit to `target`; `draw` decides on acceptance.
 *
 * The move is accepted with probability min(1, exp(beta (cost - cost'))), (23). Drawing
 * the acceptance number u first turns that into cost' <= cost - ln(u) / beta, known
 * before anything is simulated. */
static void try_move(const Candidates *c, const Rules *rules, Chain *chain,
                     int64_t unit, int64_t target, double draw, Work *w)
{
    int64_t resources = c->units.resources, before = chain->machines[unit];
    for (int64_t r = 0; r < resources; r++) {
        w->used[before * resources + r] -= c->units.demand[unit * resources + r];
        w->used[target * resources + r] += c->units.demand[unit * resources + r];
    }
    double over = excess(c, w->used);
    double limit = (chain->cost[0] - log(draw) / rules->beta) / (1.0 + over);
    chain->machines[unit] = target;
    double makespan =
        makespan_within(c, chain->machines, limit, rules->simulate_all, chain, w);
    if (!(makespan <= limit)) {
        chain->machines[unit] = before;
        return;
    }
    chain->tally[ACCEPTED]++;
    chain->cost[0] = makespan * (1.0 + over);
    if (over == 0.0 && makespan < chain->cost[1])
        keep_best(c, chain, makespan);
}

/* Carry `chain` on by one proposal per row of `draws`.
 *
 * `draws` are uniform in [0, 1), (proposals, 3): which task, which machine, acceptance.
 * `best` is filled with the best makespan after every proposal. */
void walk(const Candidates *c, const Rules *rules, Chain *chain, const double *draws,
         int64_t proposals, double *best)
{
    Work room = work_of(c), *w = &room;
    for (int64_t step = 0; step < proposals; step++, draws += 3) {
        chain->tally[PROPOSED]++;
        int64_t unit = (int64_t)(draws[0] * (double)c->units.count);
        usage(c, chain->machines, w->used);
        int64_t target =
            target_of(c, unit, chain->machines[unit], rules->mu, draws[1], w);
        if (target < 0)
            chain->tally[STUCK]++;
        else
            try_move(c, rules, chain, unit, target, draws[2], w);
        best[step] = chain->cost[1];
    }
}
