/* SPST: a tree per vertex, grown along what lengthens the stages least.
 *
 * Algorithms 1 and 2 of DGCL (Cai et al., EuroSys 2021, section 5.2); see spst.py. */
#include "inline.h"

#define FAR 1e300
#define MOST_DEVICES 62 /* sets of devices are bits of an int64 */

typedef struct { /* a tree that grows; of every device */
    int64_t depth[MOST_DEVICES]; /* -1 outside the tree */
    int64_t level[MOST_DEVICES]; /* on the way of a path */
    int64_t parent[MOST_DEVICES];
} Growth;

static inline int64_t pair_of(const Trees *t, int64_t sender, int64_t receiver)
{
    return sender * t->devices + receiver;
}

static double sum_of_peaks(const Trees *t)
{
    double sum = 0.0;
    for (int64_t stage = 0; stage < t->width; stage++)
        sum += t->peaks[stage];
    return sum;
}

/* Add the rows of a tree to the load, or take them off it. */
static void put_tree(const Trees *t, int64_t group, int64_t sign)
{
    int64_t base = group * t->width, size = t->sizes[group];
    for (int64_t edge = base; edge < base + size; edge++) {
        int64_t pair = pair_of(t, t->senders[edge], t->receivers[edge]);
        int64_t *rows = t->rows + t->stages[edge] * t->links;
        for (int64_t at = t->starts[pair]; at < t->starts[pair + 1]; at++)
            rows[t->crossed[at]] += sign * t->weights[group];
    }
    for (int64_t edge = base; edge < base + size; edge++) {
        const int64_t *rows = t->rows + t->stages[edge] * t->links;
        double peak = 0.0;
        for (int64_t link = 0; link < t->links; link++)
            peak = larger(peak, (double)rows[link] * t->row_times[link]);
        t->peaks[t->stages[edge]] = peak;
    }
}

/* Return the missing reader nearest to the tree (Dijkstra, from all its devices).
 *
 * `level` and `parent` become those of the devices on the way. */
static inline int64_t nearest(const Trees *t, int64_t missing, int64_t weight,
                              double eps, Growth *g)
{
    double dist[MOST_DEVICES];
    for (int64_t device = 0; device < t->devices; device++) {
        g->level[device] = g->depth[device];
        dist[device] = g->depth[device] >= 0 ? 0.0 : FAR;
    }
    for (int64_t settled = 0;;) {
        int64_t found = 0;
        double least = FAR;
        for (int64_t device = 0; device < t->devices; device++)
            if (dist[device] < least && !(settled >> device & 1)) {
                found = device;
                least = dist[device];
            }
        settled |= INT64_C(1) << found;
        if (missing >> found & 1)
            return found;
        const int64_t *rows = t->rows + g->level[found] * t->links;
        double peak = t->peaks[g->level[found]];
        for (int64_t to = 0; to < t->devices; to++) {
            int64_t pair = pair_of(t, found, to);
            if (t->starts[pair] == t->starts[pair + 1] || dist[to] <= least + eps)
                continue;
            double longest = peak;
            for (int64_t at = t->starts[pair]; at < t->starts[pair + 1]; at++) {
                int64_t link = t->crossed[at];
                longest = larger(longest,
                                 (double)(rows[link] + weight) * t->row_times[link]);
            }
            double far = least + (longest - peak) + eps;
            if (far < dist[to]) {
                dist[to] = far;
                g->level[to] = g->level[found] + 1;
                g->parent[to] = found;
            }
        }
    }
}

/* Add an edge to a tree, and its rows to the load of the stage. */
static inline void add_edge(const Trees *t, int64_t group, int64_t sender,
                            int64_t receiver, int64_t stage)
{
    int64_t edge = group * t->width + t->sizes[group]++;
    int64_t pair = pair_of(t, sender, receiver), *rows = t->rows + stage * t->links;
    t->senders[edge] = (int8_t)sender;
    t->receivers[edge] = (int8_t)receiver;
    t->stages[edge] = (int8_t)stage;
    for (int64_t at = t->starts[pair]; at < t->starts[pair + 1]; at++) {
        int64_t link = t->crossed[at];
        rows[link] += t->weights[group];
        double busy = (double)rows[link] * t->row_times[link];
        t->peaks[stage] = larger(t->peaks[stage], busy);
    }
}

/* Grow one tree, path by path, to the reader that lengthens the stages least. */
static void grow_tree(const Trees *t, int64_t group, double eps)
{
    Growth g;
    int64_t weight = t->weights[group], missing = t->readers[group];
    for (int64_t device = 0; device < t->devices; device++)
        g.depth[device] = -1;
    g.depth[t->owners[group]] = 0;
    t->sizes[group] = 0;
    while (missing) {
        int64_t found = nearest(t, missing, weight, eps * (double)weight, &g);
        while (g.depth[found] < 0) {
            g.depth[found] = g.level[found];
            missing &= ~(INT64_C(1) << found);
            add_edge(t, group, g.parent[found], found, g.level[found] - 1);
            found = g.parent[found];
        }
    }
}

/* Grow the tree of every group in turn. */
void grow(const Trees *t, const int64_t *order, double eps)
{
    for (int64_t i = 0; i < t->groups; i++)
        grow_tree(t, order[i], eps);
}

/* Grow every tree anew where that does not cost more. */
void grow_again(const Trees *t, const int64_t *order, double eps)
{
    int8_t senders[MOST_DEVICES], receivers[MOST_DEVICES], stages[MOST_DEVICES];
    for (int64_t i = 0; i < t->groups; i++) {
        int64_t group = order[i], base = group * t->width;
        size_t size = (size_t)t->sizes[group];
        double before = sum_of_peaks(t);
        memcpy(senders, t->senders + base, size);
        memcpy(receivers, t->receivers + base, size);
        memcpy(stages, t->stages + base, size);
        put_tree(t, group, -1);
        grow_tree(t, group, eps);
        if (sum_of_peaks(t) > before * (1 + 1e-12)) {
            put_tree(t, group, -1);
            memcpy(t->senders + base, senders, size);
            memcpy(t->receivers + base, receivers, size);
            memcpy(t->stages + base, stages, size);
            t->sizes[group] = (int8_t)size;
            put_tree(t, group, 1);
        }
    }
}

/* Return the table that the rows of an edge of the forest belong to. */
static inline int64_t table_of(const Trees *t, int64_t edge)
{
    return pair_of(t, pair_of(t, t->stages[edge], t->senders[edge]), t->receivers[edge]);
}

/* Count the rows of every (stage, sender, receiver). */
void count_rows(const Trees *t, int64_t *counts)
{
    for (int64_t group = 0; group < t->groups; group++)
        for (int64_t edge = 0; edge < t->sizes[group]; edge++)
            counts[table_of(t, group * t->width + edge)] += t->weights[group];
}

/* Write every row into the tables of its tree; vertices come in their order. */
void fill_tables(const Trees *t, const int64_t *vertices, const int64_t *group_of,
                 int64_t count, int64_t *next_place, int64_t *rows)
{
    for (int64_t row = 0; row < count; row++) {
        int64_t base = group_of[row] * t->width;
        for (int64_t edge = 0; edge < t->sizes[group_of[row]]; edge++)
            rows[next_place[table_of(t, base + edge)]++] = vertices[row];
    }
}
