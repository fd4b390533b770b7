/* Small functions that every file needs, inlined. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "core.h"

/* Events closer than this, relative to their time, happen at the same instant. */
#define TIE 1e-12

#define FOR_HOPS(i, layout, group) \
    for (int64_t i = (layout)->hop_start[group], i##_end = (layout)->hop_start[(group) + 1]; \
         i < i##_end; i++)

/* The ports that the flows of a group cross. */
#define FOR_PORTS(port, layout, group) \
    for (int64_t port, port##_i = (layout)->hop_start[group], \
                       port##_end = (layout)->hop_start[(group) + 1]; \
         port##_i < port##_end && (port = (layout)->hop[port##_i], true); port##_i++)

enum { SAMPLES = 5 }; /* of the queue that a tuner watches */
enum { WORD_BITS = 64 }; /* ports in a word of a set of them */
enum { BLOCK = 32 };  /* places per entry of `State.soonest` */
/* Columns of Lines.place and of Lines.tally. */
enum { LINE_EDGE, LINE_TURN };
enum { FIRST, JOINED, ADMITTED, LEFT, TALLIES };

/* As Python's min and max: of equal ones the first. */
static inline double smaller(double a, double b) { return b < a ? b : a; }
static inline double larger(double a, double b) { return b > a ? b : a; }
static inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t at_least(int64_t a, int64_t b) { return a > b ? a : b; }

/* The least of some times: four at once, as none is NaN. */
static inline double least_of(const double *times, int64_t count)
{
    double a = INFINITY, b = INFINITY, c = INFINITY, d = INFINITY;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        a = smaller(a, times[i]);
        b = smaller(b, times[i + 1]);
        c = smaller(c, times[i + 2]);
        d = smaller(d, times[i + 3]);
    }
    for (; i < count; i++)
        a = smaller(a, times[i]);
    return smaller(smaller(a, b), smaller(c, d));
}

/* The most of some numbers, 0 where none is more: likewise. */
static inline double largest_of(const double *numbers, int64_t count)
{
    double a = 0.0, b = 0.0, c = 0.0, d = 0.0;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        a = larger(a, numbers[i]);
        b = larger(b, numbers[i + 1]);
        c = larger(c, numbers[i + 2]);
        d = larger(d, numbers[i + 3]);
    }
    for (; i < count; i++)
        a = larger(a, numbers[i]);
    return larger(larger(a, b), larger(c, d));
}

/* Take the entry at `place` out of a list of `count`. */
static inline void remove_at(int64_t *list, int64_t count, int64_t place)
{
    memmove(list + place, list + place + 1, (size_t)(count - place - 1) * sizeof *list);
}

/* Put an entry at `place` into a list of `count`. */
static inline void insert_at(int64_t *list, int64_t count, int64_t place, int64_t entry)
{
    memmove(list + place + 1, list + place, (size_t)(count - place) * sizeof *list);
    list[place] = entry;
}

/* The words of a set of all ports. */
static inline int64_t port_words(const Layout *layout)
{
    return (layout->ports + WORD_BITS - 1) / WORD_BITS;
}

/* The parts of `route_port` that the flow between two machines crosses: none within a
 * machine. */
static inline void route_between(const Routes *routes, int64_t source, int64_t destination,
                                 int64_t *first, int64_t *end)
{
    if (source == destination) {
        *first = *end = 0;
        return;
    }
    int64_t route = routes->route_of[0];
    if (routes->zones > 1)
        route = routes->route_of[routes->zone[source] * routes->zones + routes->zone[destination]];
    *first = routes->route_start[route];
    *end = routes->route_start[route + 1];
}

/* The port at `place` of `route_port` between two machines. */
static inline int64_t port_at(const Routes *routes, int64_t place, int64_t source,
                              int64_t destination)
{
    int64_t port = routes->route_port[place];
    if (port == ROUTE_OUT)
        return routes->nic[2 * source];
    if (port == ROUTE_IN)
        return routes->nic[2 * destination + 1];
    return port;
}

/* Seconds from when a flow of `edge` was served to when its destination has it. */
static inline double latency_of(const Layout *layout, int64_t edge)
{
    if (layout->latency == NULL || layout->group[edge] < 0)
        return 0.0;
    return layout->latency[layout->group[edge]];
}

/* The least of what ports have, over those that the flows of `group` cross. Of capacities
 * it is the rate that a flow has alone, bytes per second. */
static inline double least_over(const Layout *layout, const double *of_port, int64_t group)
{
    double least = INFINITY;
    for (int64_t i = layout->hop_start[group]; i < layout->hop_start[group + 1]; i++)
        least = smaller(least, of_port[layout->hop[i]]);
    return least;
}
