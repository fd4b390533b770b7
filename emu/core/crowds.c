/* The groups with active flows over every port, listed. */

/* List `group` at its ports, in the order of groups: sums round by order. */
static void join_crowd(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    FOR_HOPS(j, layout, group) {
        int64_t port = layout->hop[j], first = layout->port_start[port];
        int64_t hole = first + scratch->crowd[port];
        while (hole > first && scratch->crossing[hole - 1] > group) {
            scratch->crossing[hole] = scratch->crossing[hole - 1];
            hole--;
        }
        scratch->crossing[hole] = group;
        scratch->crowd[port]++;
    }
}

/* Strike `group`, which has no flow any more, from the lists of its ports. */
static void leave_crowd(const Layout *layout, State *state, int64_t group)
{
    Scratch *scratch = &state->scratch;
    FOR_HOPS(j, layout, group) {
        int64_t port = layout->hop[j], place = layout->port_start[port];
        scratch->crowd[port]--;
        while (scratch->crossing[place] != group)
            place++;
        for (int64_t k = place; k < layout->port_start[port] + scratch->crowd[port]; k++)
            scratch->crossing[k] = scratch->crossing[k + 1];
    }
}

/* Bring the lists of its ports up to date with `group`; return how many flows it has more
 * than when that was last done. */
static inline int64_t note_crowd(const Layout *layout, State *state, int64_t group)
{
    int64_t *noted = state->scratch.noted + group, more = state->active[group] - *noted;
    if (more != 0 && *noted == 0)
        join_crowd(layout, state, group);
    else if (more != 0 && state->active[group] == 0)
        leave_crowd(layout, state, group);
    *noted += more;
    return more;
}

static void note_crowds(const Layout *layout, State *state)
{
    for (int64_t i = 0; i < state->length[TOUCHED]; i++)
        note_crowd(layout, state, state->touched[i]);
}
