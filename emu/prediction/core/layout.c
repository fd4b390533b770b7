/* A job on a cluster as flat arrays: what does not change while a schedule runs.
 *
 * Made once per placement; a placement search makes ten thousands of them. */

/* Room for the groups of a placement as they are found; at most one per edge. */
typedef struct {
    int64_t *size;         /* flows of every group */
    int64_t *source, *destination; /* its machines */
    int64_t *before;       /* the group out of the same machine before it, or -1 */
    int64_t *newest;       /* newest group out of every machine, or -1 */
} Groups;

/* Take the arrays of a layout, whose counts are set, out of `room`. */
static void take_layout(const JobArrays *job, Room *room, Layout *layout, Groups *groups)
{
    int64_t edges = job->edges;
    groups->size = integers(room, edges);
    groups->source = integers(room, edges);
    groups->destination = integers(room, edges);
    groups->before = integers(room, edges);
    groups->newest = integers(room, job->machines);
    layout->group = integers(room, edges);
    layout->owner = job->jobs > 0 ? integers(room, edges) : NULL;
    layout->takes = job->taken;
    layout->frees = job->freed;
    layout->pool_slots = job->slots;
    if (job->names > 0) {
        layout->takes = integers(room, job->tasks);
        layout->frees = integers(room, job->tasks);
    }
    layout->last = marks(room, job->tasks);
    layout->latency = job->latency != NULL ? numbers(room, edges) : NULL;
    layout->machine = job->speeds.count > 0 ? integers(room, job->tasks) : NULL;
}

/* Take the arrays that are as long as there are groups and hops. */
static void take_hops(Room *room, Layout *layout)
{
    layout->slot = integers(room, layout->groups + 1);
    layout->hop_start = integers(room, layout->groups + 1);
    layout->hop = integers(room, layout->hops);
    layout->port_start = integers(room, layout->ports + 2);
    layout->port_group = integers(room, layout->hops);
}

static void copy_job(const JobArrays *job, Layout *layout)
{
    memset(layout, 0, sizeof *layout);
    layout->tasks = job->tasks;
    layout->edges = job->edges;
    layout->ports = job->ports;
    layout->iterations = job->iterations;
    layout->policy = job->policy;
    layout->jobs = job->jobs;
    layout->change_count = job->change_count;
    layout->coflows = job->coflows;
    layout->by_flow = job->by_flow;
    layout->rounds = job->rounds;
    layout->sent = job->sent;
    layout->source = job->source;
    layout->destination = job->destination;
    layout->lag = job->lag;
    layout->rank = job->rank;
    layout->channel = job->channel;
    layout->coflow = job->coflow;
    layout->coflow_start = job->coflow_start;
    layout->coflow_edge = job->coflow_edge;
    layout->latest = job->latest;
    layout->out_start = job->out_start;
    layout->out_edge = job->out_edge;
    layout->in_start = job->in_start;
    layout->in_edge = job->in_edge;
    layout->order = job->order;
    layout->capacity = job->capacity;
    layout->changes = job->changes;
    layout->tuners = job->tuners;
    layout->speeds = job->speeds;
    layout->own = job->own;
    layout->ask = job->ask;
}

/* Find the group of every edge.
 *
 * The groups out of every machine are chained: a table of all pairs of 3,200 machines
 * would take 80 MB. */
static void find_groups(const JobArrays *job, const int64_t *machine_of, Groups *found,
                        Layout *layout)
{
    int64_t groups = 0;
    for (int64_t machine = 0; machine < job->machines; machine++)
        found->newest[machine] = -1;
    for (int64_t edge = 0; edge < job->edges; edge++) {
        int64_t a = machine_of[job->source[edge]];
        int64_t b = machine_of[job->destination[edge]];
        layout->group[edge] = -1;
        if (job->control[edge] || a == b)
            continue;
        /* Under a rule by flow each is a group of its own: rates of one group are equal. */
        int64_t known = job->by_flow ? -1 : found->newest[a];
        while (known >= 0 && (found->destination[known] != b
                              || (job->jobs > 0 && layout->owner[known] != job->owner[edge])))
            known = found->before[known];
        if (known < 0) {
            known = groups++;
            found->source[known] = a;
            found->destination[known] = b;
            if (job->jobs > 0)
                layout->owner[known] = job->owner[edge];
            found->before[known] = found->newest[a];
            found->newest[a] = known;
        }
        layout->group[edge] = known;
        found->size[known]++;
    }
    layout->groups = groups;
}

static int64_t count_hops(const JobArrays *job, const Groups *groups, int64_t count)
{
    int64_t hops = 0, first, end;
    for (int64_t g = 0; g < count; g++) {
        route_between(&job->routes, groups->source[g], groups->destination[g], &first, &end);
        hops += end - first;
    }
    return hops;
}

static void set_hops(const JobArrays *job, const Groups *groups, Layout *layout)
{
    int64_t first, end;
    for (int64_t g = 0; g < layout->groups; g++) {
        int64_t a = groups->source[g], b = groups->destination[g];
        int64_t hop = layout->hop_start[g];
        route_between(&job->routes, a, b, &first, &end);
        for (int64_t place = first; place < end; place++)
            layout->hop[hop++] = port_at(&job->routes, place, a, b);
        for (int64_t i = layout->hop_start[g]; layout->latency != NULL && i < hop; i++)
            layout->latency[g] += job->latency[layout->hop[i]];
        layout->hop_start[g + 1] = hop;
        layout->slot[g + 1] = layout->slot[g] + groups->size[g];
    }
}

/* List the groups that cross every port. While a port is filled its end stands where the
 * beginning of the next one will. */
static void set_crossings(Layout *layout)
{
    int64_t *start = layout->port_start;
    for (int64_t i = 0; i < layout->hops; i++)
        start[layout->hop[i] + 2]++;
    for (int64_t port = 0; port < layout->ports; port++)
        start[port + 2] += start[port + 1];
    for (int64_t group = 0; group < layout->groups; group++)
        FOR_PORTS(port, layout, group)
            layout->port_group[start[port + 1]++] = group;
}

static void set_pools(const JobArrays *job, const int64_t *machine_of, Layout *layout)
{
    if (job->names == 0)
        return;
    int64_t *takes = (int64_t *)layout->takes, *frees = (int64_t *)layout->frees;
    bool limited = job->tuners.count > 0;
    for (int64_t task = 0; task < job->tasks; task++) {
        int64_t first = machine_of[task] * job->names, name = job->taken[task];
        takes[task] = frees[task] = -1;
        if (name >= 0 && job->slots[first + name] >= 0) {
            takes[task] = first + name;
            limited = true;
        }
        name = job->freed[task];
        if (name >= 0 && job->slots[first + name] >= 0)
            frees[task] = first + name;
    }
    /* Without any limit the scheduler looks at no pool. */
    layout->pools = limited ? job->machines * job->names : 0;
}

static void set_machines(const JobArrays *job, const int64_t *machine_of, Layout *layout)
{
    for (int64_t task = 0; layout->machine != NULL && task < job->tasks; task++)
        /* -1: a gate takes its stated time on a slow machine, too. */
        layout->machine[task] = job->speeds.slowed[task] ? machine_of[task] : -1;
}

static void set_last(Layout *layout)
{
    if (layout->pools == 0 && layout->latest == NULL) {
        layout->last = NULL;
        return;
    }
    for (int64_t task = 0; task < layout->tasks; task++)
        /* Who takes a slot or reads the newest begins at the end of an instant, or it would
         * matter which of its ends was taken in first. */
        layout->last[task] = layout->takes[task] >= 0;
    for (int64_t edge = 0; layout->latest != NULL && edge < layout->edges; edge++)
        if (layout->latest[edge])
            layout->last[layout->destination[edge]] = true;
}

static void set_channels(Layout *layout)
{
    for (int64_t edge = 0; layout->channel != NULL && edge < layout->edges; edge++)
        layout->channels = at_least(layout->channels, layout->channel[edge] + 1);
}

/* True where max-min counts by clocks of ports: groups cross two of them at most. */
static bool has_port_clocks(const JobArrays *job, int64_t hops)
{
    return job->policy == MAXMIN && job->routes.longest <= 2
           && hops >= job->port_clocks_from * job->ports;
}

/* Lay `job` out in what is left of `room`. */
static void lay_out_in(const JobArrays *job, const int64_t *machine_of, Room *room,
                       Layout *layout)
{
    Groups groups;
    copy_job(job, layout);
    take_layout(job, room, layout, &groups);
    find_groups(job, machine_of, &groups, layout);
    layout->hops = count_hops(job, &groups, layout->groups);
    layout->by_port = has_port_clocks(job, layout->hops);
    take_hops(room, layout);
    set_hops(job, &groups, layout);
    set_crossings(layout);
    set_pools(job, machine_of, layout);
    set_machines(job, machine_of, layout);
    set_last(layout);
    set_channels(layout);
}

void lay_out(const JobArrays *job, const int64_t *machine_of, Room room, Layout *layout)
{
    lay_out_in(job, machine_of, &room, layout);
}

/* Take the largest layout that `job` may have. */
static void measure_layout(const JobArrays *job, Room *room, Layout *layout)
{
    Groups groups;
    copy_job(job, layout);
    take_layout(job, room, layout, &groups);
    /* At worst every edge is a group of its own, over the longest route. */
    layout->groups = job->edges;
    layout->hops = job->edges * job->routes.longest;
    layout->pools = job->machines * job->names;
    layout->by_port = has_port_clocks(job, layout->hops);
    take_hops(room, layout);
    set_channels(layout);
}

int64_t room_of_layout(const JobArrays *job)
{
    Room room = {NULL, NULL};
    Layout layout;
    measure_layout(job, &room, &layout);
    return (int64_t)(uintptr_t)room.at;
}
