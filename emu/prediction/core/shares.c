/* What machines have of a mini-batch: vertices that they own, and shares of its first layer,
 * what each adds up and the rows it needs. */
#include "inline.h"

/* Return the number of a vertex of a list, whose entries are int64 where `wide`. */
static inline int64_t vertex_at(const void *vertices, bool wide, int64_t place)
{
    if (wide)
        return ((const int64_t *)vertices)[place];
    return ((const int32_t *)vertices)[place];
}

/* Add up the vertices that every store owns: of those that are `counted`, of all where that
 * is NULL. */
void count_owned(const void *vertices, bool wide, int64_t size, const bool *counted,
                 const int32_t *owner, int64_t *counts)
{
    for (int64_t place = 0; place < size; place++) {
        int64_t vertex = vertex_at(vertices, wide, place);
        counts[owner[vertex]] += counted ? counted[place] : 1;
    }
}

/* Add up the vertices that every store owns, of those that `asker` has not asked for; `asked`
 * holds who has asked for each last. */
void count_asked(const void *vertices, bool wide, int64_t size, const int32_t *owner,
                 int32_t asker, int32_t *asked, int64_t *counts)
{
    for (int64_t place = 0; place < size; place++) {
        int64_t vertex = vertex_at(vertices, wide, place);
        counts[owner[vertex]] += asked[vertex] != asker;
        asked[vertex] = asker;
    }
}

/* Add up what every store owns and answers of a mini-batch, in one walk over its vertices.
 *
 * The first `sizes[hop]` of them are the frontier of a hop, the last size is of all. `drawn`
 * holds the edges of every vertex of a frontier, hop behind hop. `counts` has a row per
 * frontier and one of all vertices, then a row of answered edges per hop; all must be 0. */
void count_frontiers(const void *vertices, bool wide, int64_t hops,
                     const int64_t *sizes, const int32_t *drawn, const int32_t *owner,
                     int64_t stores, int64_t *counts)
{
    int64_t place = 0;
    for (int64_t first = 0; first <= hops; first++) {
        int64_t *owned = counts + first * stores;
        for (int64_t store = 0; first && store < stores; store++)
            owned[store] = owned[store - stores];
        for (; place < sizes[first]; place++) {
            int64_t store = owner[vertex_at(vertices, wide, place)];
            owned[store]++;
            /* It is in the frontiers of all hops that follow, too. */
            const int32_t *edges = drawn;
            for (int64_t hop = 0; hop < hops; hop++) {
                if (hop >= first)
                    counts[(hops + 1 + hop) * stores + store] += edges[place];
                edges += sizes[hop];
            }
        }
    }
}

/* Let a machine need the row of a place in the mini-batch. */
static inline void want(const Shared *s, int64_t place, int64_t machine)
{
    s->wanted[place * s->stride + (machine >> 3)] |= (uint8_t)(1 << (machine & 7));
}

/* Let the owners of destinations add up what these have drawn. */
static void share_by_destination(const Shared *s)
{
    const int32_t *source = s->source;
    for (int64_t end = 0; end < s->ends; end++) {
        int64_t machine = s->owner[s->vertex[end]];
        want(s, end, machine);
        for (int64_t edge = 0; edge < s->drawn[end]; edge++)
            want(s, *source++, machine);
        s->destinations[machine]++;
        s->own[machine]++;
        s->edges[machine] += s->drawn[end];
    }
}

/* Let the owners of sources add up what leaves these: a destination has a sum of each. */
static void share_by_source(const Shared *s)
{
    const int32_t *source = s->source;
    for (int64_t machine = 0; machine < s->machines; machine++)
        s->latest[machine] = -1;
    for (int64_t end = 0; end < s->ends; end++) {
        int64_t machine = s->owner[s->vertex[end]];
        want(s, end, machine);
        s->own[machine]++;
        s->destinations[machine]++;
        s->latest[machine] = end;
        for (int64_t edge = 0; edge < s->drawn[end]; edge++) {
            int64_t place = *source++;
            machine = s->owner[s->vertex[place]];
            want(s, place, machine);
            s->edges[machine]++;
            s->destinations[machine] += s->latest[machine] != end;
            s->latest[machine] = end;
        }
    }
}

/* Count the rows that machines need of a mini-batch, and those that no mini-batch of the
 * iteration before it has asked for. */
static void count_wanted(const Shared *s)
{
    for (int64_t place = 0; place < s->size; place++) {
        int64_t vertex = s->vertex[place], owner = s->owner[vertex];
        uint8_t *asked = s->asked + vertex * s->stride;
        for (int64_t byte = 0; byte < s->stride; byte++) {
            unsigned wanted = s->wanted[place * s->stride + byte];
            unsigned fresh = wanted & ~(unsigned)asked[byte];
            asked[byte] |= (uint8_t)wanted;
            for (; wanted; wanted &= wanted - 1)
                s->inputs[8 * byte + __builtin_ctz(wanted)]++;
            for (; fresh; fresh &= fresh - 1)
                s->rows[(8 * byte + __builtin_ctz(fresh)) * s->machines + owner]++;
        }
    }
}

/* Add the shares of a mini-batch to their counts; `wanted` must be 0, as `asked` before the
 * first one of an iteration. */
void count_shares(const Shared *s)
{
    if (s->by == BY_SOURCE)
        share_by_source(s);
    else
        share_by_destination(s);
    count_wanted(s);
}
