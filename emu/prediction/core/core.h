/* What Python and C share. cffi reads this file as it stands: declarations only.
 *
 * Nothing here is allocated by C. Python owns every array, `Room` included, checks
 * dtypes, sizes and indices once (`emu.prediction.core`), and keeps arrays alive as long as the
 * structures that point into them. What is counted is int64_t, what is measured double
 * (seconds, bytes, bytes per second), what is true or false bool: as numpy has them.
 * A list of lists is stored flat: the entries of x are entry[start[x]] to
 * entry[start[x + 1] - 1]. Where an array is empty in Python the pointer is NULL.
 */

/* Memory for arrays that C lays out itself; owner: Python. By value: what a function
 * takes of it is free again when it returns. */
typedef struct {
    char *at;
    char *end;
} Room;

/* An active flow as a rule of one's own is asked about it. */
typedef struct {
    int64_t group, edge, turn; /* turn: the iteration of the destination that it serves */
    double volume, left;       /* bytes, in all and not yet served */
    double rate;               /* to be set, 0 so far */
} Asked;

/* What a rule of one's own is asked. Owner: the state, while it is asked. */
typedef struct {
    double now;                /* seconds */
    int64_t before;            /* questions before it in this schedule */
    int64_t flows;
    Asked *flow;               /* in no order */
    const int64_t *hop_start, *hop; /* as in `Layout` */
    const double *capacity;    /* per port, of now */
} Question;

/* Set the rates of question->flow; `own` is `JobArrays.own`. */
typedef void (*Ask)(void *own, const Question *question);

/* The route between every two machines, as in `emu.problem.Links`. */
typedef struct {
    int64_t zones, longest;    /* number of zones; ports of the longest route */
    const int64_t *nic;        /* (machines, 2): ports out and in, -1 without */
    const int64_t *zone;       /* per machine */
    const int64_t *route_of;   /* (zones, zones): number of the route */
    const int64_t *route_start, *route_port; /* ports, ROUTE_OUT or ROUTE_IN */
} Routes;

enum { ROUTE_OUT = -1, ROUTE_IN = -2 };

/* Pools whose quota follows the queue of another one, see `emu.problem.Tuner`. */
typedef struct {
    int64_t count, rows;       /* tuners; of `path` */
    const int64_t *tuned, *watched; /* per tuner: pools, at machine * names + name */
    const int64_t *most;       /* the largest quota */
    const double *period;      /* seconds */
    const int64_t *path;       /* (rows, count): quotas to set at the first looks, 0: as
                                  the rule says */
} Tuners;

/* Shares of their speed that machines have over time, see `emu.problem.changes.SpeedSteps`; of no
 * use, and nothing is looked up, where all have all of it. */
typedef struct {
    int64_t count;             /* steps, 0 where no machine is ever slower */
    const int64_t *start;      /* (machines + 1): the first step of each, which is at 0 */
    const double *time, *share; /* of every step */
    const bool *slowed;        /* per task: it goes with the speed of its machine */
} Speeds;

/* A job and a cluster, any placement; see `emu.prediction.scheduling.compiled_problem`. */
typedef struct {
    int64_t tasks, edges, machines, ports;
    int64_t names;             /* of pools of slots */
    int64_t iterations;        /* N of the paper: the most of any task */
    int64_t policy;            /* `Policy.code` */
    int64_t jobs;              /* that ports are divided among; 0: they are not */
    int64_t change_count, coflows;
    int64_t port_clocks_from;  /* groups per port from which max-min counts by ports */
    bool by_flow;              /* flows over the same hops may have different rates */
    const int64_t *rounds;     /* per task: its iterations */
    const int64_t *sent;       /* per edge: iterations of its source that it sends */
    const int64_t *source, *destination, *lag; /* per edge */
    const int64_t *owner;      /* per edge its job, or NULL where jobs is 0 */
    const int64_t *rank;       /* per edge: its place in the order that breaks ties */
    const bool *control;       /* per edge: it carries no bytes */
    const int64_t *channel;    /* per edge, -1 for none; or NULL */
    const int64_t *coflow;     /* per edge: flows of one to one iteration go together */
    const bool *latest;        /* per edge: it reads the newest; or NULL */
    const int64_t *out_start, *out_edge, *in_start, *in_edge; /* edges of every task */
    const int64_t *coflow_start, *coflow_edge; /* and of every coflow */
    const int64_t *order;      /* tasks, each after those it needs in its iteration */
    Routes routes;
    const double *capacity;    /* per port at time 0, bytes per second */
    const double *latency;     /* per port, seconds, 0 or more; or NULL where all are 0 */
    const double *changes;     /* (change_count, 3): time, port, new capacity */
    const int64_t *taken, *freed; /* per task: name of the pool that it takes a slot of, and
                                     gives one back to, -1 for none */
    const int64_t *slots;      /* (machines, names), -1 for unlimited */
    const double *slowness;    /* (tasks, machines), or NULL where all are 1 */
    Tuners tuners;
    Speeds speeds;
    void *own;                 /* under OWN the handle of the rule, and what asks it */
    Ask ask;
} JobArrays;

/* A placed job. Owner of the arrays: whoever gave the room to `lay_out`; what is as in
 * `JobArrays` belongs to it.
 *
 * Flows that must share one rate form a group. Under oes and max-min these are all
 * flows over the same hops (one ordered pair of machines), under a policy that rates
 * flows one by one every edge is a group of its own. */
typedef struct {
    int64_t tasks, edges, ports, iterations, policy, jobs, change_count, coflows;
    int64_t channels;          /* number of channels */
    int64_t groups;
    int64_t hops;              /* entries of `hop` */
    int64_t pools;             /* of slots; 0 where nothing is limited */
    bool by_flow;
    bool by_port;              /* max-min counts by clocks of ports: port_clocks.c */
    const int64_t *rounds, *sent, *source, *destination, *lag, *rank, *channel, *coflow;
    const bool *latest;
    const int64_t *out_start, *out_edge, *in_start, *in_edge, *order;
    const int64_t *coflow_start, *coflow_edge;
    const double *capacity, *changes;
    int64_t *group;            /* per edge; -1: it delivers at once (one machine, control) */
    int64_t *owner;            /* per group its job, or NULL */
    int64_t *slot;             /* (groups + 1): first place of a group in heaps of marks */
    int64_t *hop_start, *hop;  /* ports that the flows of a group cross, one or more */
    int64_t *port_start, *port_group; /* groups that cross a port */
    double *latency;           /* per group, seconds from when a flow was served to when its
                                  destination has it: of all its ports; or NULL */
    const int64_t *takes, *frees; /* per task its pool, -1 for none */
    const int64_t *pool_slots; /* per pool */
    bool *last;                /* per task that starts when nothing else happens at an
                                  instant any more: it takes a slot or reads the newest;
                                  NULL where none does */
    Tuners tuners;
    Speeds speeds;
    int64_t *machine;          /* per task the one whose speed it has, -1 for none; NULL
                                  where no machine is ever slower */
    void *own;
    Ask ask;
} Layout;

/* When everything happened, seconds, as in `emu.problem.Schedule`: (tasks or edges,
 * iterations), NaN where nothing did. NULL where it is not kept; fifo needs flow_ready, and
 * latencies need flow_end. A flow ends when it is served, before it lands.
 * Owner: Python, or the room of a search. */
typedef struct {
    double *task_start, *task_end, *flow_ready, *flow_start, *flow_end;
    int64_t *reads;            /* per edge and iteration of its destination: which
                                  iteration of the source that one read, -1 for none,
                                  until it starts, and where it does not read the newest */
    int64_t *quotas;           /* (tuning_room, tuners): quotas from every look on */
    int64_t tuning_room;
} Log;

/* Policies by `Policy.code`, see emu/prediction/scheduling/policies.py, which explains them. */
enum {
    OES, MAXMIN, OES_CP, WEIGHTED_MAXMIN, MRTF, MRTF_EXCLUSIVE, OMCOFLOW, OMCOFLOW_FROZEN,
    OMCOFLOW_WC, OMCOFLOW_GAMMA, SEBF_MADD, FIFO, OES_BY_JOB, MAXMIN_BY_JOB, OWN, SINCRONIA,
    AALO
};

/* What omcoflow and its variants keep, per group; a coflow is
 * named by its first group. Owner: the state, as of all parts of `Scratch`. */
typedef struct {
    double *left;              /* bytes that count as left of its flow */
    int64_t *first, *next;     /* first group of its coflow, kept while that is the same; and
                                  the next one by rank, -1 behind the last */
    bool *is_chained;          /* per `Layout.coflow`; all false between two events */
    double *gamma;             /* at the first of a coflow: the seconds that its fullest port
                                  would need for it alone */
} Coflows;

/* A port of a wave; and a wave, the active flows of a coflow to one iteration: waves.c. */
typedef struct {
    int64_t port, flows;       /* active flows of the wave over it */
    double load;               /* bytes left of them, by `Wave.since` */
    double base, sent;         /* bytes per second that they have by MADD, and in all */
    double share;              /* aalo: bytes per second of each, of what others left */
    bool sends, receives;      /* it is the first port of some of them, the last of some */
} WavePort;

/* Ports 64 * word to 64 * word + 63 of a wave, a bit each: those that flows of it cross, and
 * of them those at which some begin, and end. */
typedef struct {
    int64_t word;
    uint64_t crossed, sends, receives;
} PortSet;

/* What a wave has on a port, under sincronia. */
typedef struct {
    double load;               /* bytes left, more than 0 */
    int64_t number;            /* of the wave, among those listed */
} Stake;

typedef struct {
    int64_t coflow, turn;
    int64_t first, end;        /* members; the first one is alive */
    int64_t alive;             /* 0: there is no such wave */
    int64_t port_first, port_end; /* its ports */
    int64_t parts;             /* of its sets of ports */
    int64_t common;            /* a port that all of its flows cross, or -1 */
    int64_t extra;             /* first of its flows that had more than their part, or -1 */
    double key;                /* sebf_madd: its gamma, seconds, to 32 bits; aalo: its
                                  queue */
    double queue_end;          /* aalo, bytes: what it has sent when it leaves its queue */
    double sent;               /* aalo: bytes that it has sent by now */
    double came;               /* aalo, seconds: when the first of its flows began */
    double carried;            /* aalo: bytes of those that have ended since then */
    double since, ends;        /* seconds: when loads were counted; when all end by MADD */
    bool fresh;                /* its flows are to be counted, and all rates set */
    bool is_new;               /* it was made at this event */
    bool sends, listed;        /* some flow has a rate; it is in `Scratch.order` */
} Wave;

/* Waves, under sebf_madd, sincronia and aalo; NULL elsewhere. */
typedef struct {
    Wave *wave;                /* in the place of its first member when it was made */
    WavePort *port;
    PortSet *ports;            /* the sets of a wave, from the place of its first port on */
    uint64_t *open, *full;     /* of this event, a bit per port: something is left of it; and
                                  too little to count */
    int64_t *member;           /* groups, -1 where gone, in the places of `coflow_edge` */
    int64_t *from, *to;        /* in their places: first and last port */
    int64_t *run_end;          /* and the place behind those that stand there and have one
                                  last port */
    int64_t *built;            /* per coflow: where its members end */
    int64_t *port_start;       /* per coflow: where its ports begin */
    int64_t *at;               /* per hop of a group: the port of its wave */
    int64_t *place, *wave_of;  /* per group: among the members, -1 for none; its wave */
    int64_t *extra, *next;     /* groups that have more than their part; those of a wave */
    bool *has_more;            /* per group: it is among these */
    int64_t extras;
    double *volume;            /* per group of a wave: bytes of its flow */
    double *came, *carried;    /* per group whose wave is made anew: those of the old one */
    /* Under sincronia, of this event: what waves have on every port, in the places of
     * `port_start`, and of how many; waves as they were listed; and their weights, infinite
     * where they have their place. */
    Stake *stake;
    int64_t *stakes, *listed;
    double *weight;
} Waves;

/* What mrtf keeps; see shortest_remaining.c. */
typedef struct {
    double *at;                /* per hop of a group that is served: bytes per second that
                                  those before it leave it there */
    int64_t *group, *served;   /* the groups that every port serves, as they go, in the places
                                  of `port_start`, and how many; the others, which wait, are
                                  in `Scratch.crossing` */
    int64_t *from, *to;        /* per port a walk in `queue`: the place among those served
                                  that comes next, -1 for no walk (always between two
                                  events), and the place up to which it goes at least; */
    int64_t *asked, *last;     /*  the place of who is asked next of those that wait; the
                                  group that was served last when the walk began, where it
                                  left nothing; */
    int64_t *next;             /*  and the group that is rated next */
} Offers;

/* What rules that divide ports among jobs count, at port * jobs + job; of this event. */
typedef struct {
    int64_t *flows;            /* flows in question, 0 or more */
    double *used;              /* bytes per second of those that are not */
    double *level;             /* bytes per second that each flow could rise to */
} JobShares;

/* The ports at which the flows of a group begin and end: all that most routes have. */
typedef struct {
    int32_t first, last;
} PortPair;

/* Room for computing rates, by the rules that use it; NULL for all others. Owner: the
 * state. What is not called kept is of no use from one event to the next. */
typedef struct {
    /* All rules. Per group: weight of each of its flows, not negative; their new rate, bytes
     * per second; true where that is final or not in question. */
    double *weight, *rate;
    bool *frozen;
    /* All rules. Per port: bytes per second left, 0 or more; of the flows in question the
     * summed weights or bytes, and the number. Kept: capacity per active flow (oes,
     * oes_cp); by mrtf what is left, behind all flows that the port serves. */
    double *residual, *load;
    int64_t *flows;
    double *share;
    int64_t *queue;            /* of ports, each at most once: a list, or a heap by `share` */
    /* Kept by max-min, weighted or not, by fifo, oes_cp and mrtf: the groups with active
     * flows over every port, in the places of `port_start`, rising but under mrtf, where
     * those that wait stand as they go; how many they are; and, per group, its flows that
     * they were last listed for, all that are active once rates are set. Under max-min
     * `Levels.over` is in place of the first. */
    int64_t *crossing, *crowd, *noted;
    /* Kept where flows are rated one by one: the groups with an active flow, or the first
     * ones of coflows, in the order of their keys, length[ORDERED] of them, each once; and a
     * mark per group that it is there. Under mrtf those that are served, in any order;
     * under fifo of this event. */
    int64_t *order;
    bool *is_ordered;
    /* Kept likewise, per group: its key (smallest first); the iteration of the destination
     * that its flow serves; bytes per second that it has alone; seconds of the longest path
     * behind it, where a rule looks ahead. */
    double *key;
    int64_t *turn;
    double *alone, *after;
    double *fair;              /* kept, per group, bytes per second: the least of its equal
                                  shares within its coflow; under oes_cp its oes rate */
    int64_t *changed;          /* oes_cp: groups with another oes rate, a list; mrtf: those
                                  that came and are not rated yet */
    PortPair *pair;            /* oes_cp, per group: never changes */
    uint8_t *open;             /* oes_cp, per port: 1 where something is left of it, or 0 */
    int64_t *head;             /* kept, per port, or -1: the group that it sends (fifo) or
                                  that takes the rest of it (oes_cp) */
    Asked *asked;              /* a rule of one's own: room for a question */
    Coflows coflows;
    Waves waves;
    Offers offers;
    JobShares by_job;
} Scratch;

/* A group over a port under max-min; it has active flows. */
typedef struct {
    int64_t group;
    int64_t across;            /* another port that it crosses, number `ports` for none, whose
                                  level is infinite */
    double flows;              /* active ones, 1 or more */
} Crossing;

/* The same in few bytes, where many groups cross every port. */
typedef struct {
    int32_t across, flows;
} Seat;

/* Fill levels of ports under max-min, kept from event to event; see max_min.c. Owner: the
 * state; NULL under other rules. */
typedef struct {
    double *level;             /* per port, bytes per second: the most that a flow gets,
                                  infinite: not full. Once rates are set every flow has the
                                  least level of its ports */
    double *target;            /* likewise: what it would have been when last looked for */
    double *left;              /* bytes per second that flows limited below it leave */
    int64_t *rising;           /* number of the others */
    int64_t *place;            /* per port its place among the dirty, -1 for none */
    int64_t *dirty_ports;      /* a list, length[DIRTY] of them: none once rates are set but
                                  where a capacity changed that nothing crosses */
    double *bound;             /* likewise: what their levels, old and new, are not below */
    bool pairs;                /* no route has more than two ports */
    Crossing *over;            /* groups with active flows over every port, in the places of
                                  `port_start`, as many as `Scratch.crowd` says */
    int64_t *felt;             /* places of groups that feel a change, a list */
} Levels;

/* A port as the clock of the groups whose bottleneck it is; see port_clocks.c. */
typedef struct {
    double served, since;      /* bytes served to each of them by `since`, seconds */
    double rate;               /* and bytes per second from then on: the level of the port, 0
                                  where it has no groups */
    double least;              /* the least of their goals, negative: to be looked for */
    int64_t groups;
    bool is_noted;             /* the port is in `PortClocks.noted` */
} PortClock;

/* Clocks of ports under max-min on large jobs (`Layout.by_port`). Owner: the state. */
typedef struct {
    PortClock *clock;          /* per port */
    double *left;              /* bytes per second that groups on other clocks leave it */
    int64_t *flows;            /* active flows of those on its own */
    double *finish;            /* when the first of these ends, seconds */
    int64_t *order, *rank;     /* ports, levels rising; per port its place there. Number
                                  `ports`, no port at all, is behind all */
    bool *stale;               /* in the places of `order`: its level is to be found anew. None
                                  once rates are set, the first is not before `first_stale` */
    int64_t first_stale;
    double tolerance;          /* by which levels may be out of order, as a share */
    /* In the places of `port_start`, seats of the groups with active flows, those on the clock
     * of the port first: their flows and the port across; the group; and what its clock will
     * have served when its first flow ends, infinite off the clock. */
    Seat *over;
    int64_t *member;
    double *goal;
    int64_t *seat;             /* in the places of `hop`: where a group sits */
    int64_t *noted;            /* ports whose clock has changed, a list, length[CLOCKS] */
    int64_t counted;           /* how often `left` of a port was summed anew */
} PortClocks;

/* The flows that stand in the lines of their channels, see dependencies.c. Owner: the
 * state; NULL without channels. */
typedef struct {
    int64_t *place;            /* (places, 2): edge and iteration served, in turn */
    double *came;              /* seconds: when it got ready */
    int64_t *tally;            /* (channels, 4): first place; joined, admitted, left, where
                                  left <= admitted <= joined and admitted <= left + 1 */
    int64_t *calling;          /* channels whose next flow may become active, a list: none
                                  once rates are set */
} Lines;

/* A group as its flows go on: all that an event asks of it, side by side. */
typedef struct {
    int64_t active, place;     /* active flows; where it has some, its place in `present` */
    /* Bytes served to each of its flows from when it last was empty until `since`, seconds;
     * bytes per second of each from then on; and the bytes at which the first one ends, not
     * below those served but for rounding. Under `Layout.by_port` a group that is on a clock
     * goes by that, and its rate here is 0. */
    double service, since, rate, mark;
} Fluid;

/* Positions in `State.length`: of lists, but `GATES` counts those in `due`, and `CHANGED` the
 * changes of capacities so far. */
enum {
    WOKEN, WAITING, BEGUN, OPENED, TOUCHED, GONE, QUEUED, GATES, ORDERED, CALLING,
    CHANGED, DIRTY, WALKS, PRESENT, LANDINGS, CLOCKS, LENGTHS
};

/* One schedule as it goes on. Per edge iterations are delivered in order, so one
 * counter per edge and two per task hold the whole dependency state, whatever the lags.
 * Owner of the arrays: whoever gave the room to `new_state`. What holds between two
 * instants, once rates are set, is checked by `broken_invariant` (invariants.c). */
typedef struct {
    int64_t *started, *ended;  /* per task: iterations that have;
                                  ended <= started <= ended + 1, started <= rounds */
    int64_t *missing;          /* per task: in-edges that its next iteration waits for,
                                  those of which allowed <= started */
    int64_t *ready, *delivered; /* per edge: iterations that its source produced and that
                                  the network has sent, delivered <= ready <= sent; equal
                                  where it delivers at once. Being sent is number
                                  delivered[e] */
    int64_t *landed;           /* per edge: iterations that its destination has, those less
                                  that are within their latency; `delivered` itself where
                                  there is none */
    double *landing;           /* a heap of (seconds, edge): when the next iteration of an */
    int64_t *landing_edge;     /*  edge lands, of those with landed < delivered, each once */
    int64_t *allowed;          /* per edge: iterations of its destination that it lets
                                  start: landed + lag, all once everything has landed */
    int64_t *served, *arrived; /* per edge, one more than the newest flow whose fluid has
                                  ended, and whose last byte is there: it ends when both, so
                                  not both are above delivered */
    int64_t *free;             /* per pool: slots left, those taken less those given back
                                  short of all; below 0 only after a quota fell. Nobody
                                  waits for one while there is one */
    int64_t *quota, *tunings;  /* per tuner: its slots of now, and how often it looked */
    int64_t *samples;          /* (tuners, SAMPLES): the queue at its last looks */
    int64_t *queued;           /* tasks that wait for one, or for the end of the instant: a
                                  list, in no order, each once */
    double *came;              /* per task, seconds: when it came to wait */
    /* Lists, their lengths in `length`: tasks that may start and edges whose next flow
     * may become active at the next settling, none once that is done; tasks that started
     * and flows that became active at the last one; edges whose fluid ended at this
     * instant. */
    int64_t *woken, *waiting, *begun, *opened, *gone;
    int64_t *length;           /* (LENGTHS) */
    Fluid *fluid;              /* per group */
    int64_t *present;          /* groups that have active flows, a list, each once */
    int64_t *touched;          /* groups whose flows came or went since rates were set, or
                                  over whose ports the capacity changed: a list, each once */
    bool *is_touched;          /* per group: it is among those */
    /* In the places of `present`, seconds: when the first flow of the group ends (infinite:
     * at rate 0; negative: out of date, never once rates are set), and the least of every
     * block of them, or negative. */
    double *finish, *soonest;
    double *ending;            /* a heap of groups, twice: whose first flows end now */
    int64_t *ending_group;
    double *base;              /* per edge, bytes: service of its group when its flow began */
    double *mark;              /* per group a heap of (service at which a flow ends, bytes; */
    int64_t *mark_edge;        /*  edge) with the active flows, see `Layout.slot` */
    int64_t *degree;           /* per port: active flows over it */
    double *capacity;          /* per port, bytes per second, of now: rates over it sum up to
                                  no more */
    double demotion;           /* aalo, seconds: when a coflow goes to its next queue, at the
                                  rates of now; infinity where none does */
    Levels levels;
    PortClocks clocks;
    Scratch scratch;
    Lines lines;
    Log log;
    int64_t asked;             /* questions to a rule of one's own so far */
    const double *after;       /* (edges, iterations), seconds: longest path that is left
                                  when that flow ends; NULL where no policy looks. Owner:
                                  Python */
    double *due;               /* a heap of (end in seconds, task) of running tasks whose end */
    int64_t *due_task;         /*  is known: of all in a simulation, of gates elsewhere */
} State;

/* Bytes of room that the calls below take at most. */
int64_t room_of_layout(const JobArrays *job);
int64_t room_of_state(const Layout *layout);
int64_t room_of_run(const JobArrays *job, bool ends);

/* Lay `job` out with task j on machine machine_of[j]. */
void lay_out(const JobArrays *job, const int64_t *machine_of, Room room, Layout *layout);
/* Set the state before anything starts; nothing is logged unless state->log says where. */
void new_state(const Layout *layout, const double *after, Room room, State *state);
/* Return what does not hold of a state between two instants, and in `item` the task, edge,
 * group, port, pool or channel of which; NULL where all does. For tests: it takes longer
 * than an event. `online`: ends come from outside, and gates alone are in `due`. */
const char *broken_invariant(const Layout *layout, const State *state, double now, bool online,
                             int64_t *item);
/* Set the longest paths from each task's start (tasks, iterations) and each flow's end
 * (edges, iterations), both given as zeros; times and volumes have `columns`. */
void longest_paths(const Layout *layout, const double *times, const double *volumes,
                   int64_t columns, double *from_task, double *after_flow);
/* Set the mean of every row, over its first columns, as many as counts has. */
void means(const double *values, int64_t rows, int64_t columns, const int64_t *counts,
           double *mean);

/* The lines as last seen, per edge, and what differs since; owner: Python. */
typedef struct {
    int64_t *iteration;        /* flow whose line was last seen, -1 before the first */
    double *rate;              /* its rate, 0 before the first */
    int64_t *edge;             /* edges whose line changed */
    double *served;            /* and the bytes served by now */
} RateChanges;

/* Room for a rate history, see `emu.problem.RateHistory`; owner: Python. */
typedef struct {
    bool counts;               /* false: nothing is recorded or counted */
    int64_t rows;              /* so far, counted even where there is no room for them */
    int64_t room;              /* rows that there is room for */
    RateChanges board;
    double *time;
    int64_t *edge, *iteration;
    double *rate;
} RateRecord;

/* Run a schedule to its end: see events.c. `times` and `volumes`: (tasks or edges,
 * iterations). Return the end of the last task, infinity beyond `limit`, NaN: stuck. */
double run(const Layout *layout, State *state, const double *times, const double *volumes,
           double limit, double step, RateRecord *recorder);
/* Return bytes per second of each active flow of a group; and the bytes that each has been
 * served since the group last was empty, by `now`. */
double rate_of(const Layout *layout, const State *state, int64_t group);
double service_of(const Layout *layout, const State *state, int64_t group, double now);
/* Return the makespan of a placement, as `run`; `reference` times are those of no
 * machine in particular. Takes room_of_run(job, false). */
double run_makespan(const JobArrays *job, const int64_t *machine_of,
                    const double *reference, const double *volumes, double limit,
                    Room room);
/* Set the end of every task's last iteration, infinity of all of them where the
 * makespan is longer than `limit`, or NaN. Takes room_of_run(job, true). */
void run_ends(const JobArrays *job, const int64_t *machine_of, const double *reference,
              const double *volumes, double limit, Room room, double *ends);

/* The gates of a job, and those that ended since they were last looked at; see
 * event_batch.c. The running ones are in the heap `State.due`. Owner: Python. */
typedef struct {
    const double *times;       /* (tasks, iterations), NaN in rows of others; or NULL */
    double *since;             /* when the running iteration of every task began */
    int64_t *task, *iteration; /* gates that ended */
    double *start;
    int64_t ended;             /* number of them */
} Gates;

/* Ends of tasks and arrivals of flows, in the order of their times; owner: Python. */
typedef struct {
    int64_t count;
    const double *time;
    const int64_t *task, *edge, *iteration; /* of task and edge one is -1 */
} Ends;

/* Decisions at some instants, in lists of which each has a part; see event_batch.c.
 * Owner: Python. */
typedef struct {
    int64_t room, task_room, flow_room, line_room; /* instants and entries of the lists */
    double *time;              /* per instant, seconds, not falling */
    int64_t *served;           /* per instant: flows whose fluid ended, the first lines */
    int64_t *tasks, *flows, *lines, *gates; /* (room + 1): where the part of an instant
                                  begins; `gates` in the lists of `Gates` */
    int64_t *task, *task_iteration; /* tasks that started */
    int64_t *flow, *flow_iteration; /* flows that became active */
    int64_t *edge, *iteration; /* flows whose line changed: bytes served by `since`, seconds, */
    double *amount, *rate, *since; /* and bytes per second from then on */
} Instants;

/* Where a call of `pass_instants` begins, and where it left off. */
typedef struct {
    int64_t taken, count;      /* ends taken in by now; instants found */
    double now;                /* time of the last instant */
    double next;               /* of the next end of a fluid or a gate, change or look */
    double ahead;              /* rest of it */
} Passage;

/* All is taken in; no room is left; an end cannot be; other bytes came than were announced. */
enum { DONE, FULL, IMPOSSIBLE, UNSOUND };

/* Take in ends from passage->taken on while there is room; return how it ended. `holds`:
 * the least that (task, iteration) takes, seconds, or NULL. */
int64_t pass_instants(const Layout *layout, State *state, const double *volumes,
                      const double *holds, Gates *gates, RateChanges *board,
                      const Ends *ends, double until, Instants *found, Passage *passage);

/* Say how many bytes the fluids of the newest flows of some edges have been served by a time
 * that is not before the last instant by much; NaN where none is active. */
void services_of(const Layout *layout, const State *state, const RateChanges *board,
                 const double *volumes, const int64_t *edge, int64_t count, double time,
                 double *bytes);

/* True where every iteration of every task has ended. */
bool all_ended(const Layout *layout, const State *state);

/* A binary heap of (key, item), smallest key first; see service_clocks.c. */
void heap_push(double *keys, int64_t *items, int64_t size, double key, int64_t item);
void heap_pop(double *keys, int64_t *items, int64_t size);

/* Search spaces of placements, as flat arrays that Python owns; see
 * emu/prediction/placement/candidates.py, which fills them. */

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
    int16_t *machines; /* (places, units): machine of every unit */
    double *low;       /* the makespan lies in [low, high], seconds; NaN: empty; equal where
                          the placement was simulated to the end */
    double *high;
    int64_t *held;     /* (1): entries, half of the places at most */
} Memory;

/* Positions in `Chain.tally`. */
enum { PROPOSED, ACCEPTED, SIMULATED, STUCK, TALLY };

typedef struct {
    int64_t *machines;      /* of every unit, now */
    int64_t *best_machines; /* in the best feasible placement so far */
    double *cost;           /* (21) now, makespan of the best one; seconds */
    int64_t *tally;         /* (TALLY): proposals, accepted moves, simulations, steps without
                               any machine to move to */
    Memory memory;
} Chain;

typedef struct {
    double beta; /* per second of cost */
    double mu;   /* part by which a proposal may exceed a capacity, (22) */
    bool simulate_all;
} Rules;

typedef struct { /* interchangeable units; no unit is in two classes */
    int64_t twin_classes;   /* of units that may be permuted freely */
    const int64_t *twin_start;
    const int64_t *twin;    /* units */
    int64_t block_classes;  /* of blocks that may be permuted as wholes */
    const int64_t *block_start;
    const int64_t *block_width; /* units of each block of a class */
    const int64_t *block;   /* units, block by block; corresponding ones stand at the same
                               position */
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

/* Who adds up the edges of a mini-batch's first layer: the owner of an edge's source, or that
 * of its destination. */
enum { BY_SOURCE, BY_DESTINATION };

typedef struct { /* a mini-batch, of which machines share the first layer */
    int64_t by;
    int64_t machines;
    int64_t stride; /* bytes of a set of machines */
    int64_t size;   /* vertices; the first `ends` of them are destinations */
    int64_t ends;
    const int64_t *vertex;
    const int32_t *source; /* place of every edge's source, destination by destination */
    const int32_t *drawn;  /* edges of each destination */
    const int32_t *owner;  /* of every vertex of the graph */
    uint8_t *wanted;       /* set of machines of each place */
    uint8_t *asked;        /* set of each vertex of the graph, of the whole iteration */
    int64_t *latest;       /* destination to which each machine added last */
    double *destinations;  /* of each machine, as the three below */
    double *edges;
    double *inputs;
    double *own;
    double *rows; /* (machines, owners), of the whole iteration */
} Shared;

/* Graphs: sampling.c, graphs.c, shares.c. `wide` arrays are int64, the others int32. */
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
/* Edges that `draw_hops` draws before it looks where they lead: these are on their way into
 * the processor's cache meanwhile. */
enum { DRAWN_AT_ONCE = 128 };
int64_t counted_draws(const int64_t *indptr, const int32_t *vertices, int64_t size,
                      int64_t fanout);
void draw_hops(const int64_t *indptr, const void *indices, bool wide,
               const uint64_t *keys, const int64_t *fanouts, int64_t first,
               int64_t last, int64_t *sizes, int32_t *drawn, int64_t *edge,
               int32_t *place, int32_t *vertices, int32_t *sources);
int64_t placed(const int64_t *known, int64_t given, const int64_t *ids, int64_t size,
               int32_t *place, int64_t *vertices, int32_t *positions);
void compressed(const void *sources, const void *destinations, bool wide_ends,
                int64_t edges, int64_t vertices, int64_t *ends, int64_t *fill,
                void *indices, bool wide, int64_t *indptr);
/* Walks that `missed` takes over the edges at once, at most. */
enum { MISSED_AT_ONCE = 4 };
void missed(const int64_t *indptr, int64_t vertices, const void *indices, bool wide,
            int64_t walks, const double *factors, double *misses);
void count_owned(const void *vertices, bool wide, int64_t size, const bool *counted,
                 const int32_t *owner, int64_t *counts);
void count_asked(const void *vertices, bool wide, int64_t size, const int32_t *owner,
                 int32_t asker, int32_t *asked, int64_t *counts);
void count_frontiers(const void *vertices, bool wide, int64_t hops,
                     const int64_t *sizes, const int32_t *drawn, const int32_t *owner,
                     int64_t stores, int64_t *counts);
void count_shares(const Shared *s);
void drawn_keys(const double *prefix, int64_t vertices, const int64_t *bounds_of_block,
                const int64_t *bounds_of_class, const double *near, int64_t edges,
                RandomDouble next, void *generator, int64_t *slots, int64_t capacity,
                int64_t *keys);

/* Placement: packing.c, candidates.c, moves.c, etp.c, search.c. `best` of the walks is filled with
 * the best makespan after every proposal; `machine_of` is per task, `machines` per
 * unit. */
int64_t extend(const int64_t *states, int64_t count, const int64_t *options,
               int64_t choices, const int64_t *sizes, const int64_t *strides,
               int64_t groups, bool *seen, int64_t codes, int32_t *origin,
               int32_t *addition);
int64_t room_of_candidates(const Candidates *c);
double excess(const Candidates *c, const double *used);
double lower_bound(const Candidates *c, const int64_t *machine_of);
double settled_bound(const Candidates *c, const int64_t *machine_of);
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

/* Senders that keep to rates: pacing.c, sending.c. Real bytes and wall seconds of this
 * host's clock, but for `BoardEntry`, which is of the run. */
typedef struct { /* a cache line of shared memory; the two counts agree where no writer is
                    at work (emu/emulation/network/rate_board.py) */
    uint64_t ended;
    int64_t iteration; /* -1: none yet */
    double served;
    double rate;
    double since;
    uint64_t number;
    uint64_t begun;
    uint64_t unused;
} BoardEntry;

typedef struct { /* the newest piece of a flow's fluid: served + rate * (t - since) */
    double served;
    double rate; /* 0 is legal */
    double since;
} Segment;

typedef struct { /* emu/emulation/shaping.py says what each of them is */
    double lead_time;
    double lead_bytes;
    double tail;
    double catch_up; /* infinite where a sender that stood still loses nothing */
    double shortest;
    double longest;
    double idle;
} Pace;

/* A sender holds back what is less than one of so many parts of its lead: crumbs cost a wake at
 * both ends, and a quarter never starves. */
enum { PARTS_OF_LEAD = 4 };

typedef struct { /* what one flow's sender that stood still may not catch up */
    double lost;
    double rate;    /* the last above 0 of the segments that were seen, and the highest */
    double highest;
} Bucket;

typedef struct {
    const char *start;
    int64_t size;
} Buffer;

/* By how much a rate may grow before its sender is notified. */
enum { RISE = 2 };

/* What a look of a sender came to: it waits for its next look; it has something to send
 * that its owner sends; its last byte has left; the kernel's buffer was full; the receiver
 * has gone (`Sender.error`). */
enum { PACED, OFFERS, SENT, BLOCKED, BROKEN };

typedef struct { /* which frame crossed when: FRAME_ROWS of emu/emulation/wire/frame_layout.py */
    uint32_t edge;
    uint32_t iteration;
    double first;
    double last;
    uint64_t bytes;
} FrameRow;

typedef struct {
    FrameRow *row;
    int64_t room; /* rows */
    int64_t count;
} FrameRows;

typedef struct { /* a paced frame; the last four are wall seconds */
    double edge;
    double iteration;
    double end;      /* when its last byte was in the kernel, */
    double queued;   /* its payload was there to send, */
    double informed; /* and its newest segment was first seen */
    double lag;      /* by which the alarm rang late that sent the last byte */
} SentRow;

typedef struct { /* the newest: `count` of them came, each at its number modulo `room` */
    SentRow *row;
    int64_t room;
    int64_t count;
} SentRows;

typedef struct { /* of one edge: the frame in front, and what was counted of all */
    int64_t edge;
    double capacity; /* of the narrowest link on the way, emulated bytes per second */
    int32_t fd;      /* -1 where its owner writes */
    int32_t outcome; /* of its last look */
    int32_t error;   /* errno */
    const Buffer *buffers;
    int64_t left;    /* buffers of which something is left, */
    int64_t offset;  /* and the bytes of the first that have gone */
    int64_t iteration;
    int64_t volume;   /* bytes of its body, */
    int64_t overhead; /* of what comes before it, */
    int64_t sent;     /* and of both so far */
    int64_t offered;  /* of the body that may go now */
    double queued;   /* when it was there */
    double notified; /* from when on a segment holds that there is */
    double first;    /* before its first bytes left; NaN before that */
    double last;     /* before its last bytes left */
    double end;      /* when they had */
    double known;    /* since when the newest segment holds that was seen; NaN: none was */
    double informed; /* when that was first seen */
    double begins;   /* when it may be followed */
    bool has_line;
    Segment line;    /* what it goes by, without what was lost */
    bool obeys;
    Segment obeyed;  /* the newest that had begun */
    double fluid;    /* bytes of it at the last look, with what was lost */
    double fluid_end;
    double late;     /* by which looks were, before a segment has begun */
    double due;      /* the next look */
    double next;     /* the same, not before the last ring */
    Bucket bucket;
    double max_stale; /* the longest that a segment had held before it was seen */
    double max_lead;  /* bytes ahead of the fluid */
    int64_t blocked;
    int64_t frames;   /* that have left, with bytes of their bodies and of the rest */
    int64_t payload_bytes;
    int64_t header_bytes;
    int64_t late_sends; /* of paced ones, that ended after their fluid, at most by */
    double max_behind;
    double lost_bytes;  /* that a sender which stood still could not catch up */
} Sender;

typedef struct { /* all senders of a process */
    Pace pace;
    bool started;
    double start; /* of the run, by the coordinator's clock, which is `offset` ahead at `at` */
    double time_scale;
    double byte_scale;
    double at;
    double offset;
    double drift;
    const BoardEntry *board;
    Sender **active; /* with a frame that keeps to rates */
    int64_t *attention; /* edges of those that ask for their owner */
    int64_t count;
    int32_t alarm;      /* timerfd, -1 where its owner has another */
    double due;         /* for which the alarm is set; infinite: it is not */
    double lag;         /* by which the present ring is late, 0 between two */
    double lag_sum, max_lag; /* of all */
    int64_t rings;
    FrameRows *departures;
    SentRows *sent;
} Pacing;

double fluid_end(const Segment *s, double volume);
int64_t allowance(const Segment *s, double now, int64_t sent, int64_t volume,
                  const Pace *pace);
double next_look(const Segment *s, double now, int64_t volume, const Pace *pace,
                 bool notified, bool sending);
Segment without_loss(Bucket *bucket, const Segment *seen, double now, int64_t sent,
                     int64_t volume, const Pace *pace, double capacity, double unseen);
bool segment_of(const Pacing *p, int64_t edge, int64_t iteration, Segment *s);
void load_frame(Sender *s, int64_t iteration, const Buffer *buffers, int64_t count,
                double queued, double notified);
bool add_frame(FrameRows *rows, int64_t edge, int64_t iteration, double first, double last,
               int64_t bytes);
double finish(Pacing *p, Sender *s, bool shaped);
void plan_look(const Pacing *p, Sender *s, double now);
int32_t look(const Pacing *p, Sender *s, double now);
int64_t ring(Pacing *p, double now);
bool set_timer(int32_t fd, double wall);
bool set_alarm(Pacing *p);
double soonest(const Pacing *p);
void drop(Pacing *p, const Sender *s);
/* Segments of some edges, none twice: publishing.c. `number`: how many of its edge were to
 * come with each; NULL for as many as came. */
typedef struct {
    int64_t count;
    const int64_t *edge, *iteration;
    const double *served, *rate, *since;
    const int64_t *number;
} Segments;

typedef struct { /* BOARD_ROWS of emu/emulation/wire/frame_layout.py */
    double since;
    uint32_t edge, iteration;
    double rate;
} BoardRow;

void order_of_publication(const BoardEntry *board, const Segments *s, int64_t *order);
bool publish(BoardEntry *board, int64_t entries, const Segments *s, int64_t *order);
void read_board(const BoardEntry *board, const int64_t *edge, int64_t count, BoardRow *row);
int64_t find_rises(const Segments *s, int64_t *iteration, double *known, int64_t *rises);

/* Ends that processes have reported, and what follows from them: desk.c. What is indexed by
 * (task or edge, iteration) or by edge stands until the end of the run. Owner: Python. */
typedef struct {
    int64_t tasks, edges, iterations;
    int64_t leads;             /* processes that speak for others, and for themselves */
    const int64_t *source, *destination; /* per edge */
    const int64_t *lead;       /* per task: who speaks for its process, -1 for a gate */
    const int64_t *read_start, *read_edge; /* per task: edges of which it reads the newest */
    const double *holds;       /* as for `pass_instants` */
    double *volumes;           /* (edges, iterations): announced bytes */
    int64_t *known;            /* per task: newest iteration whose end was reported, or -1, */
    double *known_end;         /*  and that end, seconds */
    double last_past;          /* newest end that had passed when it was reported */
    /* Ends that were not taken in, in the order of their times: room for `room`. */
    int64_t room, waiting;
    double *time, *volume;     /* seconds; bytes that arrived */
    int64_t *task, *edge, *iteration;
    Ends due;                  /* the first of them, in the same arrays */
    int64_t noted;             /* of these */
    int64_t place;             /* of what is wrong: byte of a message, or of `due` */
    int64_t reports, *report_place; /* (tasks): notes of the last message with a report */
    double *task_start, *task_end, *began, *late, *cpu; /* (tasks, iterations), seconds */
    double *activated, *arrivals, *flow_end; /* (edges, iterations), seconds */
    double *arrived, *fluid_end; /* per edge, seconds: NaN where nothing waits for the other */
    /* Ends that the last settling took in: room for all that waited, and every edge. */
    int64_t ended, *ended_task, *ended_edge, *ended_iteration;
    double *ended_time, *ended_volume;
    Segments news;             /* newest rate of every edge that got one, in */
    int64_t *row;              /*  these columns; per edge its row, -1 for none */
    int64_t *news_edge, *news_iteration, *news_number;
    double *news_served, *news_rate, *news_since;
    int64_t *published;        /* per edge: rates so far */
    int64_t *told, *rises;     /* as in `find_rises`, per edge */
    double *told_rate;
    int64_t order_room, *order_start; /* bytes; (leads + 2) */
    int64_t addressees, *addressed; /* leads that get orders: (leads) */
    uint8_t *orders;
} Desk;

/* Why an end that was reported is none. */
enum {
    TAKEN, CUT_SHORT, NO_END, FOREIGN, TIMELESS, UNKNOWN_ITERATION, TOO_MANY, FOREIGN_EDGE,
    NO_VOLUME
};

int64_t take_ends(Desk *desk, int64_t lead, const char *notes, int64_t size, double now);
double find_due(Desk *desk, const State *state, double until, double ahead);
bool note_instants(Desk *desk, const Instants *found, const Gates *gates,
                   const Passage *passage);
void drop_ends(Desk *desk, int64_t taken);
bool write_orders(Desk *desk, const State *state, const Instants *found, int64_t count);

/* Rates that were assigned, in the order of time, until Python packs them. */
typedef struct {
    int64_t count, room;
    double *since, *rate;      /* seconds; bytes per second */
    int64_t *edge, *iteration;
} RateRows;

/* Rate boards of this host, and what they have shown. Owner: Python. */
typedef struct {
    int64_t count, entries;    /* boards, and entries of each */
    BoardEntry **board;
    int64_t *order;            /* room for as many segments as edges */
    int64_t shown, room;       /* rows */
    BoardRow *row;
} Boards;

/* What a turn of the coordinator reads and writes: turn.c. Owner: Python. */
typedef struct {
    const Layout *layout;
    State *state;
    Gates *gates;
    RateChanges *changes;
    Instants *found;
    Passage *passage;
    Desk *desk;
    RateRows *rates;
    Boards *boards;
    double until;              /* by when ends are taken in */
    bool finished;             /* every iteration of every task has ended */
} Turn;

int64_t begin_schedule(Turn *turn);
int64_t settle_due(Turn *turn, double until, double ahead);
int64_t settle_rest(Turn *turn);
bool draw_consequences(Turn *turn);
double waited_for_core(int32_t fd);

/* Rings between two processes: rings.c. Bytes before those of a ring, and what a call came to;
 * less than 0 where it counts bytes. */
enum { RING_HEAD = 192 };
enum { RING_PASSED, RING_FULL, RING_BROKEN = -1 };

typedef struct {
    uint8_t *memory; /* that both ends have: RING_HEAD bytes and then */
    int64_t size;
    uint64_t passed; /* bytes that this end has written, or read, so far */
    int32_t wake;    /* descriptor of a pipe by which the other end is woken */
    bool is_asleep;  /* the other end is to be woken for what was written */
    bool is_queued;  /* what is to be written waits for room at the owner of this end */
} RingEnd;

int32_t write_ring(RingEnd *ring, const uint8_t *bytes, int64_t size);
int32_t fill_ring(RingEnd *ring, const uint8_t *bytes, int64_t size);
void wake_reader(RingEnd *ring);
int64_t read_ring(RingEnd *ring, uint8_t *bytes);

/* Turns of the coordinator, those that took long or began late: ring_turns.c. Owner: Python. */
typedef struct { double began, ended, before, within; } TurnRow; /* wall seconds; waits */

typedef struct {
    int32_t fd;                /* counts of this thread, as for `waited_for_core` */
    double least, brief;       /* wall seconds from which one is kept; below is not asked */
    double waited, began, before;
    int64_t count, room;       /* rows */
    TurnRow *row;
} TurnLog;

typedef struct {               /* rings of a process that speaks for others */
    RingEnd *reads, *writes;   /* NULL: it has none */
    int32_t woken;             /* descriptor that is watched */
    bool has_come;             /* something may be there to read */
} RingLead;

/* Turns that rings bring about: ring_turns.c. Owner: Python. */
typedef struct {
    Turn *turn;
    TurnLog *log;
    int64_t leads;
    RingLead *lead;            /* (leads) */
    int32_t epoll, alarm;      /* descriptors: what wakes for a turn, and a timerfd in it */
    double due;                /* wall time for which that is set */
    double start, scale;       /* wall time at run time 0; wall seconds per second */
    double reported, ahead;    /* wall seconds: see emu/emulation/coordinator/run.py */
    bool is_watched;           /* Python is to see what has settled, */
    bool leaves_turns;         /* or settles, */
    bool leaves_notes;         /* and takes what is reported */
    uint8_t *notes;            /* those of `speaker`, which Python is to see: room for a ring */
    int64_t speaker, size;     /* bytes; RING_BROKEN */
    int64_t fault;             /* of `take_ends` */
    int64_t outcome;           /* of `settle_due` */
} RingTurns;

/* What a turn leaves: notes, and all behind them; all but these. Where it has settled: all that
 * follows; orders, and what has ended; that alone. */
enum { NOTHING_LEFT, NOTES_LEFT, TURN_LEFT, INSTANTS_LEFT, ORDERS_LEFT, ENDS_LEFT };

void begin_turn(TurnLog *log, double now);
void end_turn(TurnLog *log, double now);
bool open_ring_turns(RingTurns *t);
void leave_rings(RingTurns *t, int64_t number);
bool read_rings(RingTurns *t, double now);
void set_turn_alarm(RingTurns *t, double now);
int64_t take_ring_turn(RingTurns *t);

/* Beyond so many buffers a scatter-gather call gains nothing. Bytes of one call: of a raw
 * socket's throughput at 16 MB, 4 MB keep 0.96, 1 MB 0.92, 256 KB 0.82; but 4 MB hold the
 * loop for 0.8 ms, without a bound it was 5.7. */
enum { BUFFERS = 16, BURST = 1 << 22 };
int64_t gather(const Sender *s, int64_t bytes, Buffer *views);
void on_sent(Sender *s, int64_t bytes);
int32_t send_bytes(Sender *s, int64_t bytes);

/* Receivers of frames: frames.c, receiving.c. Real bytes, wall seconds of this host. A frame
 * is laid out as emu/emulation/wire/frame_layout.py says. */
/* Bytes that one call may bring of what is not the middle of a body, and of that: at 16 MB
 * 4 MB keep 0.93 of a raw socket's throughput, 2 MB 0.84; without a bound the loop was held
 * for 5.7 ms. */
enum { HEADS = 1 << 14, WINDOW = 1 << 22 };
/* Tensors of a plain header, at most, their dimensions and the bytes of their names. */
enum { TENSORS = 8, DIMENSIONS = 4, NAME = 31 };
/* What came of the bytes so far: more are to come; a header that needs memory for its body,
 * plain or for the owner to judge; a prefix that the owner is to refuse; a whole frame; the
 * end of the stream; a body beyond the limit of `Receiver.memory`; an error
 * (`Receiver.error`). */
enum { WAITS, HEADED, ODD_HEADER, ODD_PREFIX, ARRIVED, ENDED, NO_ROOM, FAILED };
/* The part of a frame that is due: its body has no memory yet, or it has. */
enum { AT_PREFIX, AT_HEADER, AT_BODY, IN_BODY };

typedef struct {
    char name[NAME];
    char type[2]; /* its dtype */
    int32_t size; /* of its name, */
    int32_t dimensions;
    int64_t shape[DIMENSIONS];
} Tensor;

typedef struct { /* when bytes of a connection came: emu/emulation/network/rx_timestamps.py */
    bool stamped; /* the kernel takes notes */
    double last;  /* of the newest byte */
    double hole;  /* seconds for which bytes of this frame waited for a lost segment, */
    double unread; /* and to be read */
    double delay;  /* from arrival to reading, of the newest call */
    int64_t ahead; /* segments that had come out of order when the kernel was asked */
} Arrivals;

typedef struct { /* what the kernel says of segments out of order: TCP_INFO */
    int64_t ahead; /* that have come ahead of a missing one so far */
    double quiet;  /* seconds since one came in order, in whole ticks */
    double clock;  /* that advances once per tick, and a tick's seconds */
    double tick;
} Disorder;

typedef struct {
    uint8_t *start;
    int64_t size;
} Span;

/* Memory for payloads of a process, bytes: memory.c. Owner: Python. */
typedef struct {
    int64_t in_use, high_water; /* handed out now, and at most so far */
    int64_t held;               /* taken from the system, in use or ready */
    int64_t limit;              /* the most that `in_use` may become */
} PayloadMemory;

int64_t size_class(int64_t size);
bool lend(PayloadMemory *m, int64_t size);
void take_back(PayloadMemory *m, int64_t size);

/* Payloads that a timed task gets over an edge, which it knows: payloads.c. */
typedef struct {
    uint64_t seed;
    int64_t edge;
    int64_t first;        /* number in the job of iteration 0 of frames */
    const uint8_t *ring;  /* random bytes, */
    int64_t period;       /* so many, */
    int64_t block;        /* of which so many are compared at once */
    int64_t iteration;    /* number in the job of the present body, */
    int64_t start;        /* its place in the ring, */
    int64_t fault;        /* and where other bytes were seen first in it, -1: nowhere */
} Expected;

int64_t window_start(uint64_t seed, int64_t edge, int64_t iteration, int64_t period);
int64_t count_equal(const uint8_t *bytes, int64_t size, int64_t block,
                    const uint8_t *ring, int64_t period, int64_t start);
void expect_body(Expected *e, int64_t iteration);
void compare(Expected *e, int64_t came, const uint8_t *bytes, int64_t size);

typedef struct { /* one connection whose edge is known */
    int32_t fd;    /* -1 where its owner receives */
    int32_t error; /* errno */
    int32_t least; /* bytes for which the kernel wakes the owner */
    Arrivals *arrivals;
    int32_t held;  /* an outcome that its owner is still to get, WAITS for none */
    bool drained;  /* the newest call brought less than it might */
    int64_t turn;  /* bytes of this turn of the loop */
    uint8_t *heads; /* `room` bytes, filled from `begin` to `end` by what was not taken yet */
    int64_t room;
    int64_t begin;
    int64_t end;
    int64_t header_limit;
    int64_t body_limit;
    int32_t part;
    int64_t header; /* bytes of this frame's header and body */
    int64_t length;
    uint8_t *body;
    int64_t filled;
    Expected *expected; /* what its bodies are compared with, and not kept; NULL: they are */
    uint8_t *window;    /* through which those pass, */
    int64_t window_room; /* and its bytes */
    PayloadMemory *memory; /* that those count in as well; NULL: in none */
    bool passes;         /* the body does, and counts in `memory` until its owner says no */
    uint32_t stated;   /* checksum of header and body as sent, */
    uint32_t checksum; /* and of what has come of them */
    int64_t edge;
    int64_t iteration;
    bool shaped;
    int32_t tensors;
    Tensor tensor[TENSORS];
    double wall;  /* of the newest byte, */
    double first; /* and by when the header had come */
    /* A leaky bucket: what came in any interval, less what its rate carries. */
    double rate;  /* the most that the edge may have; infinite: bursts are not watched */
    double level;
    double noted; /* NaN: never */
    double burst; /* the most; -1: none */
} Receiver;

uint32_t checksum(uint32_t before, const uint8_t *bytes, int64_t size); /* checksum.c */
bool read_header(Receiver *r, const uint8_t *packed, int64_t size);
int32_t take_frame(Receiver *r);
bool give_body(Receiver *r, uint8_t *body, int64_t size);
bool let_pass(Receiver *r);
void give_up(Receiver *r);
bool has_bytes_alone(const Receiver *r);
Span next_room(Receiver *r);
bool on_bytes(Receiver *r, int64_t count, double wall);
int64_t missing(const Receiver *r);
double note_arrival(Arrivals *a, double now, double age, const Disorder *d);
/* Bytes of a row of CONNECTION_ROWS (emu/emulation/wire/frame_layout.py): tcp_info.c. */
enum { STATE_BYTES = 66 };
bool read_state(int32_t fd, uint32_t edge, uint32_t iteration, uint8_t *row);
bool read_disorder(int32_t fd, Disorder *d);
bool ask_for_stamps(int32_t fd);
int64_t receive_bytes(int32_t fd, uint8_t *start, int64_t size, Arrivals *a);
int32_t receive(Receiver *r);

/* Timed tasks of one process, their ends of edges, and what wakes it: timed_tasks.c,
 * timed_edges.c, timed_loop.c. Without
 * Python from an order to what it sends, and from bytes that come to the task that waits for
 * them. Times are wall seconds, bytes real ones, unless they are said to be of the run.
 * Owner of all arrays: Python. */
/* Bytes of a frame before its body: frame_heads.c. */
enum { HEAD = 96 };

typedef struct { /* an edge by which they send */
    int64_t edge;
    Sender *sender;      /* NULL where it ends at `inlet` of this process */
    int64_t inlet;
    int64_t sent;        /* iterations that it carries, */
    const int64_t *size; /* the bytes of each, */
    double *since;       /* and when they were there to send */
    bool shaped;
    int64_t queued;      /* iterations that are there so far, */
    int64_t front;       /* and the one that leaves, or is to leave next */
    bool loaded;         /* the sender has that one */
    bool paced;          /* by its rates */
    bool writing;        /* the kernel's buffer was full */
    bool broken;         /* its receiver has gone */
    uint8_t head[HEAD];
    Buffer buffers[2];
} Outlet;

typedef struct { /* an edge by which they receive */
    int64_t edge;
    Receiver *receiver;  /* NULL where it begins in this process, or Python receives */
    int64_t task;        /* place of its task, */
    int64_t lag;         /* which needs the iteration so many before its own, */
    bool latest;         /*  or the newest that its order names, */
    double latency;      /*  run seconds after it has come */
    int64_t sent;        /* iterations that it carries: per iteration */
    double *arrived;     /*  when the last byte came, NaN before that, */
    int64_t *volume;     /*  its bytes, */
    bool *waits;         /*  and whether it came before it was needed and is still here */
    int64_t newest;      /* iteration that came last, -1: none */
    int64_t needed;      /* by the order under way, -1: none */
    int64_t given_back;  /* iterations whose memory is free again, of those before */
    bool watched;        /* for bytes that come */
    int64_t frames;      /* that came, with bytes of their bodies and of the rest */
    int64_t payload_bytes;
    int64_t header_bytes;
} Inlet;

typedef struct {
    int64_t task;
    int64_t iterations;
    const double *time; /* of each, run seconds at full speed */
    Speeds speeds;      /* of its machine, the only one there */
    int64_t first_inlet, inlets;
    int64_t first_outlet, outlets;
    int64_t ended;      /* iterations */
    bool ordered;       /* the next one, */
    double start;       /* from this run time on */
    double since;       /* when it began to wait for inputs; NaN: it does not */
    double next;        /* when to look at it again; infinite: when something comes */
} TimedTask;

typedef struct { /* WAIT_ROWS of emu/emulation/wire/frame_layout.py */
    uint32_t edge;
    uint32_t iteration;
    double hole;
    double unread;
} WaitRow;

typedef struct { /* all of a process */
    int32_t epoll;      /* of its `TimedLoop`, */
    int32_t number;     /* in which it has this place */
    bool stirred;       /* something has come, or was ordered, since its last turn */
    double due;         /* when it is to have the next one anyhow; infinite: never */
    Pacing *pacing;
    TimedTask *task;
    int64_t tasks;
    Inlet *inlet;
    int64_t inlets;
    Outlet *outlet;
    int64_t outlets;
    const int64_t *outlet_of; /* per edge of the job, -1: it leaves from none */
    uint64_t seed;      /* of the payloads, windows into */
    const uint8_t *pool;
    int64_t period;
    int64_t first;      /* number in the job of iteration 0 */
    FrameRows *arrivals;
    WaitRow *wait;      /* the newest: as in `SentRows` */
    int64_t wait_room, wait_count;
    uint8_t *state;     /* likewise, of STATE_BYTES each: connections before their flows */
    int64_t state_room, state_count;
    PayloadMemory *memory;
    int64_t waiting, waiting_bytes; /* payloads that came before they were needed, */
    int64_t most_waiting, most_waiting_bytes; /* and at most so far */
    uint8_t *notes;     /* ends to report, as emu/emulation/wire/notes.py packs them */
    int64_t notes_room, notes_size;
    bool is_full;       /* there was no room for another */
    int64_t *odd_inlet; /* those that Python is to look at, */
    int64_t odd_inlets;
    int64_t *odd_outlet;
    int64_t odd_outlets;
} TimedProcess;

typedef struct { /* all timed processes of a process of the system, which wake together */
    int32_t epoll;      /* what is watched, */
    int32_t timer;      /* and the timerfd, */
    double due;         /* which is set for then; infinite: it is not */
    TimedProcess **member; /* by their numbers, NULL: it has not begun, or has ended */
    int64_t members;
    bool is_called;     /* Python has something to read, or a signal to see to, */
    bool is_asked;      /* or to take from a process */
    int64_t tasks;      /* of the job, per task: */
    const int64_t *task_owner; /*  number of the process that runs it, -1: none here, */
    const int64_t *task_place; /*  and its place there */
    int64_t edges;      /* per edge likewise: */
    const int64_t *edge_owner; /*  number of the process that it leaves from */
    RingEnd *ends;      /* to the coordinator, NULL: Python reports */
    RingEnd *orders;    /* from the coordinator, */
    int32_t woken;      /* the pipe by which it wakes this process, */
    bool has_orders;    /* and something may be there */
    uint8_t *order;     /* room for all that a ring holds */
    uint8_t *left;      /* orders that Python is to carry out, or to refuse */
    int64_t left_size;
    bool is_stalled;    /* there is no room for ends */
    bool is_broken;     /* a ring cannot be as it is */
} TimedLoop;

int64_t write_head(uint8_t *head, int64_t edge, int64_t iteration, bool shaped,
                   const uint8_t *body, int64_t size);
double run_time_of(const Pacing *p, double wall);
double wall_of(const Pacing *p, double time);
bool watch_inlet(TimedProcess *p, int64_t place);
void leave_inlet(TimedProcess *p, int64_t place);
void leave_all(TimedProcess *p);
bool open_loop(TimedLoop *loop, int32_t python);
bool watch_orders(TimedLoop *loop);
void turn_until(TimedLoop *loop, double wall);
bool order_task(TimedProcess *p, int64_t place, int64_t iteration, double start,
                const int32_t *reads, int64_t count);
void wake_outlet(TimedProcess *p, int64_t edge, double since);
bool cut_outlet(TimedProcess *p, int64_t place);
void deliver_payload(TimedProcess *p, Inlet *in, int64_t iteration, double wall,
                     int64_t volume, bool shaped);
void take_turn(TimedProcess *p);
