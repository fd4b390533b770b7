/* Simulated annealing over feasible placements, sketches, and listing them all.
 *
 * Before a simulation comes an estimate, which costs a hundredth of one: a chain whose
 * proposals have passed a cheap model first (Christen and Fox, "MCMC using an
 * approximation", 2005), here without their correction, since it is a search. */
#include "candidates.h"

#define ATTEMPTS 50 /* moves tried for one proposal; most fail in a tight cluster */
/* Neighbours that an estimate may refuse for one proposal, and its temperature there, as
 * part of the estimate now. */
#define SCREENED 50
#define SCREEN 0.01
/* Part of the proposals that an estimate may refuse: it is blind to what waits, and of
 * 200 small clusters 1,000 candidates met the optimum of 180 where all were screened. */
#define PART 0.5

/* The part of all proposals that each move takes, in the order of `propose`. */
static const double SHARES[] = {0.35, 0.35, 0.10, 0.10, 0.10};
#define KINDS ((int)(sizeof SHARES / sizeof *SHARES))

static inline void copy(int64_t *to, const int64_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = from[i];
}

static inline bool equal(const int64_t *one, const int64_t *other, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (one[i] != other[i])
            return false;
    return true;
}

/* Fill the candidate with a feasible placement unlike `machines`, if one is met.
 *
 * Both in canonical form. */
static bool feasible_neighbour(const Candidates *c, const Symmetry *symmetry,
                               const Teams *teams, uint64_t *state,
                               const int64_t *machines, Work *w)
{
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        copy(w->candidate, machines, c->units.count);
        double draw = uniform(state);
        int kind = 0;
        while (kind < KINDS - 1 && draw >= SHARES[kind])
            draw -= SHARES[kind++];
        propose(c, teams, state, w->candidate, kind, w);
        canonicalise(symmetry, w->candidate);
        if (equal(w->candidate, machines, c->units.count))
            continue;
        usage(c, w->candidate, w->used);
        if (excess(c, w->used) == 0.0)
            return true;
    }
    return false;
}

static double estimate_of(const Candidates *c, const int64_t *machines, Work *w)
{
    return estimate_within(c, expand(c, machines, w->machine_of), w);
}

/* Fill the candidate likewise and return its estimate; infinity where none is met.
 *
 * Most that are estimated worse than `now`, seconds, are passed over: by a chain of
 * plain makespans alone, since an estimate counts neither slots nor several jobs. */
static double promising_neighbour(const Candidates *c, const Symmetry *symmetry,
                                  const Teams *teams, uint64_t *state,
                                  const int64_t *machines, double now, Work *w)
{
    bool plain = c->arrays->names == 0 && c->costs.jobs == 0;
    double guess = INFINITY;
    int most = plain && uniform(state) < PART ? SCREENED : 1;
    for (int i = 0; i < most; i++) {
        if (!feasible_neighbour(c, symmetry, teams, state, machines, w))
            return INFINITY;
        guess = estimate_of(c, w->candidate, w);
        if (guess <= now * (1.0 - SCREEN * log(uniform(state))))
            break;
    }
    return guess;
}

/* Fill `best` with the result of annealing a feasible placement under `estimate` alone;
 * -1: out of memory. `best` holds the placement to begin with; temperatures are one per
 * proposal, as parts of the first estimate. */
void sketch(const Candidates *c, const Symmetry *symmetry, const Teams *teams,
           uint64_t *state, const double *temperatures, int64_t proposals,
           int64_t *best)
{
    Work room = work_of(c), *w = &room;
    int64_t units = c->units.count;
    copy(w->now, best, units);
    canonicalise(symmetry, w->now);
    double first = estimate_of(c, w->now, w), cost = first, least = first;
    for (int64_t step = 0; step < proposals; step++) {
        if (!feasible_neighbour(c, symmetry, teams, state, w->now, w))
            continue;
        double guess = estimate_of(c, w->candidate, w);
        if (guess <= cost - log(uniform(state)) * temperatures[step] * first) {
            copy(w->now, w->candidate, units);
            cost = guess;
            if (cost < least) {
                copy(best, w->now, units);
                least = cost;
            }
        }
    }
}

/* Carry `chain` on by one proposal per temperature.
 *
 * A placement that takes t seconds longer is accepted with probability
 * exp(-t / temperature). `best` is filled with the best makespan after every proposal,
 * `state`, of the random numbers, carried on. */
void anneal(const Candidates *c, const Symmetry *symmetry, const Teams *teams,
           uint64_t *state, Chain *chain, const double *temperatures, int64_t proposals,
           double *best)
{
    Work room = work_of(c), *w = &room;
    canonicalise(symmetry, chain->machines);
    double now = estimate_of(c, chain->machines, w);
    for (int64_t step = 0; step < proposals; step++) {
        chain->tally[PROPOSED]++;
        double guess = promising_neighbour(c, symmetry, teams, state, chain->machines,
                                           now, w);
        double limit = chain->cost[0] - log(uniform(state)) * temperatures[step];
        if (guess < INFINITY) {
            double makespan =
                makespan_within(c, w->candidate, limit, false, chain, w);
            if (makespan <= limit) {
                chain->tally[ACCEPTED]++;
                copy(chain->machines, w->candidate, c->units.count);
                chain->cost[0] = makespan;
                now = guess;
                if (makespan < chain->cost[1])
                    keep_best(c, chain, makespan);
            }
        }
        best[step] = chain->cost[1];
    }
}

static bool has_room(const double *demand, const double *room, int64_t resources)
{
    for (int64_t r = 0; r < resources; r++)
        if (demand[r] > room[r])
            return false;
    return true;
}

/* Fill canonical feasible placements and their bounds, and return how many; -1: more
 * than `most`, or than can be met in `most_steps`.
 *
 * Depth-first over the units: a unit that does not fit ends its branch. */
int64_t list_all(const Candidates *c, const Symmetry *symmetry, int64_t most,
                 int64_t most_steps, int16_t *found, double *bound)
{
    Work room_of = work_of(c), *w = &room_of;
    const Units *u = &c->units;
    int64_t units = u->count, resources = u->resources, count = 0, unit = 0;
    int64_t *machines = w->now;
    double *room = w->used;
    for (int64_t i = 0; i < units; i++)
        machines[i] = -1;
    for (int64_t i = 0; i < c->arrays->machines * resources; i++)
        room[i] = u->capacity[i] * (1.0 + TOLERANCE) - u->used[i];
    int64_t step = 0;
    for (; step < most_steps && unit >= 0; step++) {
        const double *demand = u->demand + unit * resources;
        int64_t now = machines[unit];
        if (now >= 0)
            for (int64_t r = 0; r < resources; r++)
                room[now * resources + r] += demand[r];
        now++;
        while (now < c->arrays->machines &&
               !has_room(demand, room + now * resources, resources))
            now++;
        if (now == c->arrays->machines) {
            machines[unit--] = -1;
            continue;
        }
        machines[unit] = now;
        for (int64_t r = 0; r < resources; r++)
            room[now * resources + r] -= demand[r];
        if (unit < units - 1) {
            unit++;
            continue;
        }
        copy(w->candidate, machines, units);
        canonicalise(symmetry, w->candidate);
        if (!equal(w->candidate, machines, units))
            continue;
        if (count == most)
            break;
        for (int64_t i = 0; i < units; i++)
            found[count * units + i] = (int16_t)machines[i];
        count++;
    }
    if (unit >= 0 || step == most_steps)
        return -1;
    /* Only now: of a space that is too large to list nobody asks for bounds. */
    for (int64_t place = 0; place < count; place++) {
        for (int64_t i = 0; i < units; i++)
            machines[i] = found[place * units + i];
        bound[place] = bound_within(c, expand(c, machines, w->machine_of), w);
    }
    return count;
}
