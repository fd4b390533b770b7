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

/* Which machine needs which row of a mini-batch: a bit each, `stride` bytes per place. In
 * locals, as what is written through `bits` could be any field that is read again. */
typedef struct {
    uint8_t *bits;
    int64_t stride;
} Wanted;

static inline void want(Wanted wanted, int64_t place, int64_t machine)
{
    wanted.bits[place * wanted.stride + (machine >> 3)] |= (uint8_t)(1 << (machine & 7));
}

/* Count one machine's share, of all edges and destinations: it needs every row. */
static void share_whole(const Shared *s, int64_t edges)
{
    int64_t home = s->home, size = s->size, stride = s->stride;
    uint8_t bit = (uint8_t)(1 << (home & 7)), *asked = s->asked + (home >> 3);
    const int64_t *vertices = s->vertex;
    const int32_t *owner = s->owner;
    double *rows = s->rows + home * s->machines;
    for (int64_t place = 0; place < size; place++) {
        int64_t vertex = vertices[place];
        rows[owner[vertex]] += !(asked[vertex * stride] & bit);
        asked[vertex * stride] |= bit;
    }
    s->inputs[home] += (double)s->size;
    s->destinations[home] += (double)s->ends;
    s->own[home] += (double)s->ends;
    s->edges[home] += (double)edges;
}

/* Let the owners of destinations add up what these have drawn. */
static void share_by_destination(const Shared *s)
{
    const int32_t *source = s->source;
    Wanted wanted = {s->wanted, s->stride};
    for (int64_t end = 0; end < s->ends; end++) {
        int64_t machine = s->owner[s->vertex[end]], edges = s->drawn[end];
        want(wanted, end, machine);
        for (int64_t edge = 0; edge < edges; edge++)
            want(wanted, source[edge], machine);
        source += edges;
        s->destinations[machine]++;
        s->own[machine]++;
        s->edges[machine] += (double)edges;
    }
}

/* Let the owners of sources add up what leaves these: a destination has a sum of each. */
static void share_by_source(const Shared *s)
{
    const int32_t *source = s->source, *owner = s->owner;
    const int64_t *vertex = s->vertex;
    int64_t *latest = s->latest;
    double *destinations = s->destinations, *shared_edges = s->edges;
    Wanted wanted = {s->wanted, s->stride};
    for (int64_t machine = 0; machine < s->machines; machine++)
        latest[machine] = -1;
    for (int64_t end = 0; end < s->ends; end++) {
        int64_t machine = owner[vertex[end]], edges = s->drawn[end];
        want(wanted, end, machine);
        s->own[machine]++;
        destinations[machine]++;
        latest[machine] = end;
        for (int64_t edge = 0; edge < edges; edge++) {
            int64_t place = source[edge];
            machine = owner[vertex[place]];
            want(wanted, place, machine);
            shared_edges[machine]++;
            destinations[machine] += latest[machine] != end;
            latest[machine] = end;
        }
        source += edges;
    }
}

/* Count the rows that machines need of a mini-batch, and those that no mini-batch of the
 * iteration before it has asked for. */
static void count_wanted(const Shared *s)
{
    int64_t stride = s->stride, machines = s->machines;
    const uint8_t *wanted_bits = s->wanted;
    double *inputs = s->inputs;
    for (int64_t place = 0; place < s->size; place++) {
        int64_t vertex = s->vertex[place];
        uint8_t *asked = s->asked + vertex * stride;
        double *rows = s->rows + s->owner[vertex];
        for (int64_t byte = 0; byte < stride; byte++) {
            unsigned wanted = *wanted_bits++;
            unsigned fresh = wanted & ~(unsigned)asked[byte];
            asked[byte] |= (uint8_t)wanted;
            for (; wanted; wanted &= wanted - 1)
                inputs[8 * byte + __builtin_ctz(wanted)]++;
            for (; fresh; fresh &= fresh - 1)
                rows[(8 * byte + __builtin_ctz(fresh)) * machines]++;
        }
    }
}

/* Add the shares of a mini-batch to their counts; `wanted` must be 0, as `asked` before the
 * first one of an iteration. */
void count_shares(const Shared *s, int64_t edges)
{
    if (s->by == BY_HOME) {
        share_whole(s, edges);
        return;
    }
    if (s->by == BY_SOURCE)
        share_by_source(s);
    else
        share_by_destination(s);
    count_wanted(s);
}
