/* What the loops of placement share: room, costs, moves. */
#pragma once
#include "inline.h"

#define TOLERANCE 1e-12 /* relative, of a capacity, as in space.py */
#define ROUNDING 1e-9   /* relative; a bound exceeds a limit by more to reject anything */

typedef struct { /* what flows of a placement ask of a port */
    double load;       /* bytes */
    double head, tail; /* seconds before the first of them at least, and after the last */
} PortUse;

typedef struct { /* the room of a search, carved up */
    PortUse *port;
    double *bounds;                      /* of ports */
    int64_t *crossed, *hop;              /* of edges that carry bytes: how many ports they
                                            cross, and which, `longest` places for each */
    double *taken;                       /* of edges */
    double *times, *end;                 /* of tasks, two iterations each */
    double *ends_of;                     /* of tasks */
    double *used;                        /* (machines, resources) */
    double *left;                        /* (2, resources) */
    double *last;                        /* of jobs */
    int64_t *machine_of;                 /* of tasks */
    int64_t *available;                  /* of machines */
    int64_t *kept;                       /* of pools */
    int64_t *candidate, *chosen, *now;   /* of units */
    Room room;                           /* for a run */
} Work;

Work work_of(const Candidates *c);
const int64_t *expand(const Candidates *c, const int64_t *machines, int64_t *machine_of);
void usage(const Candidates *c, const int64_t *machines, double *used);
double excess(const Candidates *c, const double *used);
double bound_within(const Candidates *c, const int64_t *machine_of, Work *w);
double estimate_within(const Candidates *c, const int64_t *machine_of, Work *w);
double cost_within(const Candidates *c, const int64_t *machine_of, double limit,
                   Work *w);
double makespan_within(const Candidates *c, const int64_t *machines, double limit,
                       bool simulate_all, Chain *chain, Work *w);
void keep_best(const Candidates *c, Chain *chain, double makespan);
double uniform(uint64_t *state);
void propose(const Candidates *c, const Teams *teams, uint64_t *state,
             int64_t *machines, int kind, Work *w);
