/* Graphs: edges compressed by destination, and edges drawn for synthetic ones. */
#include <stdlib.h>

#include "inline.h"

#define SHORT_ROW 64 /* of neighbours; beyond it insertion costs more than qsort */

static inline int64_t at(const void *values, bool wide, int64_t place)
{
    return wide ? ((const int64_t *)values)[place] : ((const int32_t *)values)[place];
}

static inline void put(void *values, bool wide, int64_t place, int64_t value)
{
    if (wide)
        ((int64_t *)values)[place] = value;
    else
        ((int32_t *)values)[place] = (int32_t)value;
}

static int compare_wide(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

static int compare_narrow(const void *one, const void *other)
{
    int32_t a = *(const int32_t *)one, b = *(const int32_t *)other;
    return (a > b) - (a < b);
}

static inline void sort_row(void *row, bool wide, int64_t size)
{
    if (size > SHORT_ROW) {
        qsort(row, (size_t)size, wide ? 8 : 4, wide ? compare_wide : compare_narrow);
        return;
    }
    for (int64_t i = 1; i < size; i++) {
        int64_t value = at(row, wide, i), j = i;
        for (; j > 0 && at(row, wide, j - 1) > value; j--)
            put(row, wide, j, at(row, wide, j - 1));
        put(row, wide, j, value);
    }
}

/* Sort every row and free it of duplicates; fill `indptr`. */
static inline void compact(const int64_t *ends, int64_t vertices, void *indices,
                           bool wide, int64_t *indptr)
{
    /* `end` never overtakes the row that is read: all happens in place. */
    int64_t end = 0;
    for (int64_t vertex = 0; vertex < vertices; vertex++) {
        int64_t first = ends[vertex], size = ends[vertex + 1] - first;
        sort_row((char *)indices + first * (wide ? 8 : 4), wide, size);
        for (int64_t i = first; i < first + size; i++)
            if (i == first || at(indices, wide, i) != at(indices, wide, end - 1))
                put(indices, wide, end++, at(indices, wide, i));
        indptr[vertex + 1] = end;
    }
}

/* Compress edges and their reverses by destination: a counting sort, then each row
 * sorted and freed of duplicates. Touches the edges twice in order, so they may be
 * mapped files. `ends` and `indptr` hold vertices + 1 zeros, `fill` as many places. */
void compressed(const void *sources, const void *destinations, bool wide_ends,
                int64_t edges, int64_t vertices, int64_t *ends, int64_t *fill,
                void *indices, bool wide, int64_t *indptr)
{
    for (int64_t edge = 0; edge < edges; edge++) {
        int64_t a = at(sources, wide_ends, edge), b = at(destinations, wide_ends, edge);
        if (a != b) {
            ends[b + 1]++;
            ends[a + 1]++;
        }
    }
    fill[0] = 0;
    for (int64_t vertex = 0; vertex < vertices; vertex++)
        fill[vertex + 1] = ends[vertex + 1] += ends[vertex];
    for (int64_t edge = 0; edge < edges; edge++) {
        int64_t a = at(sources, wide_ends, edge), b = at(destinations, wide_ends, edge);
        if (a != b) {
            put(indices, wide, fill[b]++, a);
            put(indices, wide, fill[a]++, b);
        }
    }
    if (wide)
        compact(ends, vertices, indices, true, indptr);
    else
        compact(ends, vertices, indices, false, indptr);
}

/* Multiply what the neighbours of every vertex miss by its factors, one for each walk: little
 * to do where few vertices draw. */
static inline void miss_by_writing(const int64_t *indptr, int64_t vertices,
                                   const void *indices, bool wide, int64_t walks,
                                   const double *factors, double *misses)
{
    for (int64_t vertex = 0; vertex < vertices; vertex++) {
        double factor[MISSED_AT_ONCE];
        bool is_drawing = false;
        for (int64_t walk = 0; walk < walks; walk++) {
            factor[walk] = factors[vertex * walks + walk];
            is_drawing |= factor[walk] != 1.0;
        }
        if (!is_drawing)
            continue;
        for (int64_t edge = indptr[vertex]; edge < indptr[vertex + 1]; edge++) {
            double *row = misses + walks * at(indices, wide, edge);
            for (int64_t walk = 0; walk < walks; walk++)
                row[walk] *= factor[walk];
        }
    }
}

/* Multiply what every vertex misses by the factors of its neighbours: as `miss_by_writing` in
 * the order of who draws, since edges stand there in both directions, and rows ascend. */
static inline void miss_by_reading(const int64_t *indptr, int64_t vertices,
                                   const void *indices, bool wide, int64_t walks,
                                   const double *factors, double *misses)
{
    for (int64_t vertex = 0; vertex < vertices; vertex++) {
        double product[MISSED_AT_ONCE];
        double *row = misses + vertex * walks;
        for (int64_t walk = 0; walk < walks; walk++)
            product[walk] = row[walk];
        for (int64_t edge = indptr[vertex]; edge < indptr[vertex + 1]; edge++) {
            const double *factor = factors + walks * at(indices, wide, edge);
            for (int64_t walk = 0; walk < walks; walk++)
                product[walk] *= factor[walk];
        }
        for (int64_t walk = 0; walk < walks; walk++)
            row[walk] = product[walk];
    }
}

/* As `missed`; a number of walks that the compiler knows makes vectors of them. */
static inline void miss(const int64_t *indptr, int64_t vertices, const void *indices,
                        bool wide, int64_t walks, const double *factors, double *misses)
{
    int64_t size = vertices * walks, idle = 0;
    for (int64_t place = 0; place < size; place++)
        idle += factors[place] == 1.0;
    if (4 * idle > 3 * size) /* most, where few vertices are seeds */
        miss_by_writing(indptr, vertices, indices, wide, walks, factors, misses);
    else
        miss_by_reading(indptr, vertices, indices, wide, walks, factors, misses);
}

/* Multiply what every vertex misses by the chance that each edge from it is not drawn, edge
 * by edge. `factors`: that a vertex does not draw any one of its neighbours; both have a row
 * per vertex, an entry of it per walk. Memory takes the time, and walks at once share it: over
 * 6 million edges one took 6.3 ms, four take 13 to 18, and 23 to 31 where all are written. */
void missed(const int64_t *indptr, int64_t vertices, const void *indices, bool wide,
            int64_t walks, const double *factors, double *misses)
{
    if (walks == 1)
        miss(indptr, vertices, indices, wide, 1, factors, misses);
    else if (walks == MISSED_AT_ONCE)
        miss(indptr, vertices, indices, wide, MISSED_AT_ONCE, factors, misses);
    else
        miss(indptr, vertices, indices, wide, walks, factors, misses);
}

/* Return a vertex of low .. high - 1, by weight; `prefix` holds sums of weights. */
static int64_t by_weight(const double *prefix, int64_t low, int64_t high,
                         RandomDouble next, void *generator)
{
    double target = prefix[low] + next(generator) * (prefix[high] - prefix[low]);
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        /* With < a vertex of weight 0 could be drawn. */
        if (prefix[middle] <= target)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Fill `keys` with `edges` distinct pairs of a degree-corrected stochastic block model.
 *
 * Draws one edge after the other and skips loops and duplicates. Drawing them all with
 * numpy and topping up what was double took 12 s for 1.2 million edges (dense blocks
 * repeat themselves); this takes 0.5 s. `near` holds the shares of edges within a block,
 * and within block or class; `slots` hold -1, a power of 2 of them, 2 * edges or more. */
void drawn_keys(const double *prefix, int64_t vertices, const int64_t *bounds_of_block,
                const int64_t *bounds_of_class, const double *near, int64_t edges,
                RandomDouble next, void *generator, int64_t *slots, int64_t capacity,
                int64_t *keys)
{
    uint64_t mask = (uint64_t)capacity - 1;
    for (int64_t count = 0; count < edges;) {
        int64_t first = by_weight(prefix, 0, vertices, next, generator);
        double kind = next(generator);
        const int64_t everywhere[2] = {0, vertices};
        const int64_t *range = kind < near[0]   ? bounds_of_block + 2 * first
                               : kind < near[1] ? bounds_of_class + 2 * first
                                                : everywhere;
        int64_t second = by_weight(prefix, range[0], range[1], next, generator);
        if (first == second)
            continue;
        int64_t least = first < second ? first : second;
        int64_t key = least * vertices + first + second - least;
        /* Fibonacci hashing: keys of one block are close, and would fill slots side by side. */
        uint64_t slot = ((uint64_t)key * UINT64_C(0x9E3779B97F4A7C1) >> 16) & mask;
        while (slots[slot] >= 0 && slots[slot] != key)
            slot = (slot + 1) & mask;
        if (slots[slot] < 0) {
            slots[slot] = key;
            keys[count++] = key;
        }
    }
}
