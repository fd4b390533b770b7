/* Search spaces of placements, as flat arrays that Python owns; see
 * emu/placement/candidates.py, whose tuples have the same fields. */

typedef struct {
    int64_t count;     /* units that can move */
    int64_t resources; /* columns of the three matrices */
    const int64_t *fixed;      /* machine of every pinned task, -1 for the others */
    const int64_t *unit_start; /* (count + 1) */
    const int64_t *unit_task;  /* tasks of every unit */
    const double *demand;      /* (count, resources) */
    const double *used;        /* by pinned tasks, (machines, resources) */
    const double *capacity;    /* (machines, resources); infinite where unlimited */
} Units;

typedef struct {
    const double *capacity; /* of every port at most, bytes per second */
    const double *sent;     /* bytes of every edge in the whole run */
    const double *head;     /* least seconds before the first flow of an edge */
    const double *tail;     /* and from the end of its last flow to the makespan */
    double least;           /* makespan if every transfer took no time, seconds */
} Transfers;

typedef struct {
    int64_t jobs;          /* 0 where the makespan is what counts */
    const int64_t *job;    /* of every task */
    const double *weight;  /* of every job */
    const double *release; /* of every job, seconds */
    bool total;            /* the sum of the jobs' times, else the longest */
} JobCosts;

typedef struct {
    const JobArrays *arrays;
    const double *times;   /* reference times, (tasks, iterations), seconds */
    const double *volumes; /* (edges, iterations), bytes */
    const double *busy;    /* seconds of every task on every machine */
    Units units;
    Transfers transfers;
    JobCosts costs;
    Room room; /* for one call at a time: room_of_candidates */
} Candidates;

typedef struct { /* a hash table with open addressing; entries are never removed */
    int64_t places;    /* a power of 2, or 0 for a search that remembers nothing */
    int16_t *machines; /* (places, units) */
    double *low;       /* the makespan lies in [low, high], seconds; NaN: empty */
    double *high;
    int64_t *held;     /* entries */
} Memory;

typedef struct {
    int64_t *machines;      /* of every unit, now */
    int64_t *best_machines; /* in the best feasible placement so far */
    double *cost;           /* (21) now, makespan of the best one; seconds */
    int64_t *tally;         /* PROPOSED, ACCEPTED, SIMULATED, STUCK */
    Memory memory;
} Chain;

typedef struct {
    double beta; /* per second of cost */
    double mu;   /* part by which a proposal may exceed a capacity, (22) */
    bool simulate_all;
} Rules;

typedef struct { /* interchangeable units */
    int64_t twin_classes;
    const int64_t *twin_start;
    const int64_t *twin;
    int64_t block_classes;
    const int64_t *block_start;
    const int64_t *block_width;
    const int64_t *block;
} Symmetry;

typedef struct { /* team t is unit[start[t] .. start[t + 1]), hub first */
    int64_t count;
    const int64_t *start;
    const int64_t *unit;
} Teams;

typedef struct { /* a topology, and a tree per group of rows */
    int64_t devices;
    int64_t links;
    const int32_t *starts;  /* of the links of pair sender * devices + receiver */
    const int32_t *crossed; /* links */
    const double *row_times; /* of every link, the fastest being 1 */
    int64_t groups;
    int64_t width; /* edges of a tree at most, and stages */
    const int64_t *owners;
    const int64_t *readers; /* sets of devices, bit by bit */
    const int64_t *weights; /* rows of each group */
    int8_t *senders;        /* of each edge, (groups, width), as the two below */
    int8_t *receivers;
    int8_t *stages;
    int8_t *sizes; /* edges of each tree */
    int64_t *rows; /* that cross each link in each stage, (width, links) */
    double *peaks; /* time of each stage: of its slowest link */
} Trees;

/* Graphs: sampling.c, graphs.c. `wide` arrays are int64, the others int32. */
typedef double (*RandomDouble)(void *);
void permuted(int64_t first, int64_t last, int64_t count, uint64_t key,
              int64_t *images);
int64_t picked_edges(const int64_t *indptr, const int64_t *frontier, int64_t size,
                     int64_t fanout);
void picked(const int64_t *indptr, const int64_t *frontier, int64_t size,
            int64_t fanout, uint64_t key, const void *indices, bool wide,
            int64_t *chosen, int64_t *sources, int32_t *destinations);
int64_t relabelled(const int64_t *known, int64_t given, const int64_t *ids, int64_t size,
                   int32_t *slots, int64_t capacity, int64_t *vertices,
                   int32_t *positions);
void compressed(const void *sources, const void *destinations, bool wide_ends,
                int64_t edges, int64_t vertices, int64_t *ends, int64_t *fill,
                void *indices, bool wide, int64_t *indptr);
void drawn_keys(const double *prefix, int64_t vertices, const int64_t *bounds_of_block,
                const int64_t *bounds_of_class, const double *near, int64_t edges,
                RandomDouble next, void *generator, int64_t *slots, int64_t capacity,
                int64_t *keys);

/* Placement: candidates.c, moves.c, etp.c, search.c. `best` of the walks is filled with
 * the best makespan after every proposal; `machine_of` is per task, `machines` per
 * unit. */
int64_t room_of_candidates(const Candidates *c);
double without_transfers(const JobArrays *a, const double *times, const double *taken,
                         double *end, double *rest, double *head, double *tail);
double excess(const Candidates *c, const double *used);
double lower_bound(const Candidates *c, const int64_t *machine_of);
double estimate(const Candidates *c, const int64_t *machine_of);
double placement_cost(const Candidates *c, const int64_t *machine_of, double limit);
void canonicalise(const Symmetry *s, int64_t *machines);
int64_t place_of(const Memory *m, const int64_t *machines, int64_t units);
void remember(const Memory *m, int64_t place, const int64_t *machines, int64_t units,
              double low, double high);
void walk(const Candidates *c, const Rules *rules, Chain *chain, const double *draws,
          int64_t proposals, double *best);
void sketch(const Candidates *c, const Symmetry *symmetry, const Teams *teams,
            uint64_t *state, const double *temperatures, int64_t proposals,
            int64_t *best);
void anneal(const Candidates *c, const Symmetry *symmetry, const Teams *teams,
            uint64_t *state, Chain *chain, const double *temperatures, int64_t proposals,
            double *best);
int64_t list_all(const Candidates *c, const Symmetry *symmetry, int64_t most,
                 int64_t most_steps, int16_t *found, double *bound);

/* Bounds: bounds.c. */
void earliest_ready(const Layout *layout, const double *times, const double *volumes,
                    double *ready, double *arrived, double *ended);

/* DGCL's planner: spst.c. */
void grow(const Trees *t, const int64_t *order, double eps);
void grow_again(const Trees *t, const int64_t *order, double eps);
void count_rows(const Trees *t, int64_t *counts);
void fill_tables(const Trees *t, const int64_t *vertices, const int64_t *group_of,
                 int64_t count, int64_t *next_place, int64_t *rows);
