/* Neighbour sampling, seeds and positions: pure functions of hashed whole numbers.
 *
 * Every draw is a hash of (stream, hop, vertex, number of the draw): no generator state.
 */
#include "inline.h"

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)
#define FEISTEL_ROUNDS 6

/* Vertices ahead of the present one whose neighbours are fetched into the processor's
 * cache, and lines of 64 bytes of each. */
enum { AHEAD = 8, LINES = 4 };

/* splitmix64's finalizer (Steele, Lea, Flood, OOPSLA 2014): every input bit reaches
 * every output bit. */
static inline uint64_t mixed(uint64_t value)
{
    value = (value ^ (value >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94D049BB133111EB);
    return value ^ (value >> 31);
}

/* Fill `images` with the places first .. last - 1 of a permutation of 0 .. count - 1.
 *
 * A Feistel network permutes 0 .. 4^half - 1; walking a cycle until it re-enters the
 * range permutes that, and no permutation is ever stored: one of papers100M's training
 * set would take 10 MB per sampler and process. */
void permuted(int64_t first, int64_t last, int64_t count, uint64_t key, int64_t *images)
{
    uint64_t half = 1;
    while (half < 31 && UINT64_C(1) << (2 * half) < (uint64_t)count)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    for (int64_t position = first; position < last; position++) {
        uint64_t image = (uint64_t)position;
        do {
            uint64_t left = image >> half, right = image & mask;
            for (uint64_t number = 0; number < FEISTEL_ROUNDS; number++) {
                uint64_t turned = left ^ (mixed(key + (right << 8) + number) & mask);
                left = right;
                right = turned;
            }
            image = left << half | right;
        } while (image >= (uint64_t)count);
        images[position - first] = (int64_t)image;
    }
}

/* Return how many edges `picked` draws. */
int64_t picked_edges(const int64_t *indptr, const int64_t *frontier, int64_t size,
                     int64_t fanout)
{
    int64_t total = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t degree = indptr[frontier[i] + 1] - indptr[frontier[i]];
        total += degree < fanout ? degree : fanout;
    }
    return total;
}

/* Return place `draw` of the sample of `taken` out of `degree`, and note it in `chosen`.
 *
 * Floyd (Bentley, Floyd, CACM 1987): a uniform subset, one hash each. 32 bits of hash
 * times the range: bias below range / 2^32. */
static inline int64_t floyd(uint64_t own, int64_t degree, int64_t taken, int64_t draw,
                            int64_t *chosen)
{
    int64_t last = degree - taken + draw;
    uint64_t bits = mixed(own + (uint64_t)(draw + 1) * GOLDEN) >> 32;
    int64_t pick = (int64_t)((bits * (uint64_t)(last + 1)) >> 32);
    for (int64_t earlier = 0; earlier < draw; earlier++)
        if (chosen[earlier] == pick) {
            pick = last;
            break;
        }
    return chosen[draw] = pick;
}

/* Fetch what vertices further on need: where they lie in memory follows from no draw.
 *
 * A batch of 26,000 vertices took 2.1 ms without, and takes 1.4. */
static inline void fetch_neighbours(const int64_t *indptr, const int64_t *frontier,
                                    int64_t left, const char *indices, int64_t width)
{
    if (left > 2 * AHEAD)
        __builtin_prefetch(indptr + frontier[2 * AHEAD]);
    if (left > AHEAD)
        for (int64_t line = 0; line < LINES; line++)
            __builtin_prefetch(indices + width * indptr[frontier[AHEAD]] + 64 * line);
}

/* Fill the ends of the sampled edges: vertices, and positions in the frontier.
 *
 * `indices` are int64 where `wide`, else int32; `chosen` has room for a fanout. */
void picked(const int64_t *indptr, const int64_t *frontier, int64_t size,
            int64_t fanout, uint64_t key, const void *indices, bool wide,
            int64_t *chosen, int64_t *sources, int32_t *destinations)
{
    int64_t end = 0;
    for (int64_t position = 0; position < size; position++) {
        fetch_neighbours(indptr, frontier + position, size - position, indices,
                         wide ? sizeof(int64_t) : sizeof(int32_t));
        int64_t vertex = frontier[position], first = indptr[vertex];
        int64_t degree = indptr[vertex + 1] - first;
        int64_t taken = degree < fanout ? degree : fanout;
        uint64_t own = mixed(key + (uint64_t)vertex * GOLDEN);
        for (int64_t draw = 0; draw < taken; draw++) {
            int64_t pick = draw;
            if (degree > fanout)
                pick = floyd(own, degree, taken, draw, chosen);
            sources[end] = wide ? ((const int64_t *)indices)[first + pick]
                                : ((const int32_t *)indices)[first + pick];
            destinations[end++] = (int32_t)position;
        }
    }
}

/* As `relabelled`, with `place` of each vertex of the graph in place of hashes.
 *
 * What it holds of earlier calls is found out: a place that is taken leads back to its
 * vertex. So nothing is cleared, and all that is needed is that it was 0 at first. */
int64_t placed(const int64_t *known, int64_t given, const int64_t *ids, int64_t size,
               int32_t *place, int64_t *vertices, int32_t *positions)
{
    int32_t count = 0;
    for (; count < given; count++) {
        vertices[count] = known[count];
        place[known[count]] = count;
    }
    for (int64_t number = 0; number < size; number++) {
        int64_t vertex = ids[number];
        int32_t found = place[vertex];
        if (found >= count || vertices[found] != vertex) {
            found = count++;
            vertices[found] = vertex;
            place[vertex] = found;
        }
        positions[number] = found;
    }
    return count;
}

/* Return how many edges a hop draws, of at most `fanout` from each of some vertices. */
int64_t counted_draws(const int64_t *indptr, const int32_t *vertices, int64_t size,
                      int64_t fanout)
{
    int64_t total = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t degree = indptr[vertices[i] + 1] - indptr[vertices[i]];
        total += degree < fanout ? degree : fanout;
    }
    return total;
}

/* Draw the edges of a vertex as `picked` does: their places in `indices` become `edge`. Return
 * how many there are. */
static inline int64_t draw_edges(const int64_t *indptr, int64_t vertex, int64_t fanout,
                                 uint64_t key, const char *indices, int64_t width,
                                 int64_t *edge)
{
    int64_t first = indptr[vertex], degree = indptr[vertex + 1] - first;
    int64_t taken = degree < fanout ? degree : fanout;
    uint64_t own = mixed(key + (uint64_t)vertex * GOLDEN);
    for (int64_t draw = 0; draw < taken; draw++) {
        if (degree > taken)
            floyd(own, degree, taken, draw, edge);
        else
            edge[draw] = draw;
        __builtin_prefetch(indices + width * (first + edge[draw]));
    }
    for (int64_t draw = 0; draw < taken; draw++)
        edge[draw] += first;
    return taken;
}

/* Draw a hop of a batch whose edges need no lists, of its `size` vertices so far; append to
 * these what is new, in the order of `placed`, and return how many there are. */
static int64_t grown(const int64_t *indptr, const void *indices, bool wide,
                     uint64_t key, int64_t size, int64_t fanout, int32_t *drawn,
                     int64_t *edge, int32_t *place, int32_t *vertices, int32_t *sources)
{
    int64_t width = wide ? sizeof(int64_t) : sizeof(int32_t);
    int32_t count = (int32_t)size;
    for (int64_t next = 0; next < size;) {
        int64_t edges = 0;
        for (; next < size && edges < DRAWN_AT_ONCE; next++) {
            if (size - next > AHEAD)
                __builtin_prefetch(indptr + vertices[next + AHEAD]);
            int64_t taken = draw_edges(indptr, vertices[next], fanout, key, indices,
                                       width, edge + edges);
            drawn[next] = (int32_t)taken;
            edges += taken;
        }
        for (int64_t i = 0; i < edges; i++) {
            int32_t vertex = wide ? (int32_t)((const int64_t *)indices)[edge[i]]
                                  : ((const int32_t *)indices)[edge[i]];
            int32_t found = place[vertex];
            bool is_new = (found >= count) | (vertices[found] != vertex);
            vertices[count] = vertex; /* for good if it is new: half are, by no rule */
            found = is_new ? count : found;
            place[vertex] = found;
            count += is_new;
            if (sources)
                *sources++ = found;
        }
    }
    return count;
}

/* Draw hops `first` .. `last` - 1 of a batch, whose frontiers have `sizes`; fill the size that
 * follows each, and `drawn` with the edges of every vertex of a frontier, hop behind hop.
 *
 * `place` leads from each vertex so far to its place, and holds anything else of others, as of
 * `placed`. `vertices` has room for one more than `place`, `edge` for a block and what one
 * vertex draws. `sources` gets the place of every edge's source, unless it is NULL. */
void draw_hops(const int64_t *indptr, const void *indices, bool wide,
               const uint64_t *keys, const int64_t *fanouts, int64_t first,
               int64_t last, int64_t *sizes, int32_t *drawn, int64_t *edge,
               int32_t *place, int32_t *vertices, int32_t *sources)
{
    for (int64_t hop = 0; hop < last; hop++) {
        if (hop >= first)
            sizes[hop + 1] = grown(indptr, indices, wide, keys[hop], sizes[hop],
                                   fanouts[hop], drawn, edge, place, vertices, sources);
        drawn += sizes[hop];
    }
}

/* Give vertices positions by first appearance, `known` before `ids`; return how many.
 *
 * `slots` hold -1, a power of 2 of them, at least twice as many as `known` and `ids`
 * together; `vertices` has room for both. */
int64_t relabelled(const int64_t *known, int64_t given, const int64_t *ids, int64_t size,
                   int32_t *slots, int64_t capacity, int64_t *vertices,
                   int32_t *positions)
{
    uint64_t mask = (uint64_t)capacity - 1;
    int32_t count = 0;
    for (int64_t number = 0; number < given + size; number++) {
        int64_t vertex = number < given ? known[number] : ids[number - given];
        uint64_t slot = mixed((uint64_t)vertex) & mask;
        while (slots[slot] >= 0 && vertices[slots[slot]] != vertex)
            slot = (slot + 1) & mask;
        if (slots[slot] < 0) {
            slots[slot] = count;
            vertices[count++] = vertex;
        }
        if (number >= given)
            positions[number - given] = slots[slot];
    }
    return count;
}
