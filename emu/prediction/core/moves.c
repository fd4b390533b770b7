/* Moves of the improved search, the random numbers that choose them, canonical forms.
 *
 * A task moves alone, or a worker together with its samplers; see moves.py. */
#include "candidates.h"

enum { MOVE, SWAP, MOVE_TEAM, SWAP_TEAMS, RESPLIT };

static inline void swap(int64_t *values, int64_t a, int64_t b)
{
    int64_t value = values[a];
    values[a] = values[b];
    values[b] = value;
}

static bool precedes(const int64_t *machines, const int64_t *block, int64_t a,
                     int64_t b, int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        int64_t ours = machines[block[a + i]], theirs = machines[block[b + i]];
        if (ours != theirs)
            return ours < theirs;
    }
    return false;
}

/* Relabel interchangeable units in place so that equals become equal: machines ascend
 * within each class of twins, then blocks ascend lexicographically. */
void canonicalise(const Symmetry *s, int64_t *machines)
{
    for (int64_t c = 0; c < s->twin_classes; c++) {
        const int64_t *twin = s->twin;
        int64_t first = s->twin_start[c], end = s->twin_start[c + 1];
        for (int64_t i = first + 1; i < end; i++) /* insertion sort */
            for (int64_t j = i;
                 j > first && machines[twin[j]] < machines[twin[j - 1]]; j--)
                swap(machines, twin[j - 1], twin[j]);
    }
    for (int64_t c = 0; c < s->block_classes; c++) {
        const int64_t *block = s->block;
        int64_t width = s->block_width[c];
        int64_t first = s->block_start[c], end = s->block_start[c + 1];
        for (int64_t i = first + width; i < end; i += width)
            for (int64_t j = i;
                 j > first && precedes(machines, block, j, j - width, width);
                 j -= width)
                for (int64_t k = 0; k < width; k++)
                    swap(machines, block[j - width + k], block[j + k]);
    }
}

/* Return the next number in [0, 1) of a SplitMix64 generator with one word. */
double uniform(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

/* Return a random integer in [0, bound). */
static int64_t below(uint64_t *state, int64_t bound)
{
    return (int64_t)(uniform(state) * (double)bound);
}

/* Let two teams of equal size change places, member by member. */
static void swap_teams(const Teams *teams, uint64_t *state, int64_t *machines)
{
    int64_t a = below(state, teams->count), b = below(state, teams->count);
    int64_t size = teams->start[a + 1] - teams->start[a];
    if (teams->start[b + 1] - teams->start[b] != size)
        return;
    for (int64_t i = 0; i < size; i++)
        swap(machines, teams->unit[teams->start[a] + i],
             teams->unit[teams->start[b] + i]);
}

static bool fits(const double *demand, const double *left, int64_t resources)
{
    for (int64_t r = 0; r < resources; r++)
        if (demand[r] > left[r] + fabs(left[r]) * TOLERANCE)
            return false;
    return true;
}

/* Deal the units of two machines out anew between them, as far as they fit.
 *
 * Connects packings between which no chain of feasible moves and swaps leads. */
static void resplit(const Candidates *c, uint64_t *state, int64_t *machines, Work *w)
{
    const Units *u = &c->units;
    int64_t count = c->arrays->machines, resources = u->resources, size = 0;
    int64_t a = below(state, count), b = below(state, count);
    if (a == b)
        return;
    for (int64_t unit = 0; unit < u->count; unit++)
        if (machines[unit] == a || machines[unit] == b)
            w->chosen[size++] = unit;
    for (int64_t r = 0; r < resources; r++) {
        w->left[r] = u->capacity[a * resources + r] - u->used[a * resources + r];
        w->left[resources + r] =
            u->capacity[b * resources + r] - u->used[b * resources + r];
    }
    for (int64_t i = 0; i < size; i++) {
        swap(w->chosen, i, i + below(state, size - i));
        int64_t unit = w->chosen[i], side = below(state, 2);
        const double *demand = u->demand + unit * resources;
        if (!fits(demand, w->left + side * resources, resources))
            side = 1 - side;
        machines[unit] = side ? b : a; /* may not fit either: then it is refused */
        for (int64_t r = 0; r < resources; r++)
            w->left[side * resources + r] -= demand[r];
    }
}

/* Change `machines` in place by one random move of a kind. */
void propose(const Candidates *c, const Teams *teams, uint64_t *state,
             int64_t *machines, int kind, Work *w)
{
    int64_t units = c->units.count, count = c->arrays->machines;
    if (kind == RESPLIT) {
        resplit(c, state, machines, w);
    } else if (kind == MOVE) {
        int64_t target = below(state, count);
        machines[below(state, units)] = target;
    } else if (kind == SWAP) {
        int64_t a = below(state, units);
        swap(machines, a, below(state, units));
    } else if (kind == MOVE_TEAM) {
        int64_t team = below(state, teams->count), target = below(state, count);
        for (int64_t i = teams->start[team]; i < teams->start[team + 1]; i++)
            machines[teams->unit[i]] = target;
    } else {
        swap_teams(teams, state, machines);
    }
}
