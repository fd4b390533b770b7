/* Timed tasks of a process: an iteration begins at its time with its inputs there, ends when
 * its time is over, and sends what it has to. Nothing computes, and nothing calls Python. */
#define _GNU_SOURCE
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#include <sys/timerfd.h>
#endif
#include "clock.h"
#include "inline.h"
#include "timed_edges.h"

#include "machine_speeds.c"

/* The kind of the note of an end, its bytes, and those of each flow that follows. */
enum { TASK_NOTE = 2, TASK_NOTE_BYTES = 64, SENT_BYTES = 16 };
/* Events that one call may bring. */
enum { EVENTS = 64 };

/* The iteration of an input that the next one of its task reads, -1: none. */
static int64_t needed_of(const Inlet *in, int64_t iteration)
{
    int64_t needed = iteration - in->lag;
    return needed < in->sent ? at_least(needed, -1) : -1;
}

/* The input over an edge of which the task reads the newest, NULL: there is none. */
static Inlet *find_latest(const TimedProcess *p, const TimedTask *task, int64_t edge)
{
    for (int64_t i = task->first_inlet; i < task->first_inlet + task->inlets; i++)
        if (p->inlet[i].edge == edge && p->inlet[i].latest)
            return p->inlet + i;
    return NULL;
}

/* Order an iteration: from a run time on, of these (edge, iteration) that read the newest.
 * False where it is not the next one, or names what is no input of it. */
bool order_task(TimedProcess *p, int64_t place, int64_t iteration, double start,
                const int64_t *reads, int64_t count)
{
    TimedTask *task = p->task + place;
    if (task->ordered || iteration != task->ended || iteration >= task->iterations)
        return false;
    for (int64_t i = task->first_inlet; i < task->first_inlet + task->inlets; i++) {
        Inlet *in = p->inlet + i;
        if (!in->latest)
            in->needed = needed_of(in, iteration);
    }
    for (int64_t read = 0; read < count; read++) {
        Inlet *in = find_latest(p, task, reads[2 * read]);
        int64_t newest = reads[2 * read + 1];
        if (in == NULL || newest < -1 || newest >= in->sent)
            return false;
        in->needed = newest;
    }
    task->ordered = true;
    task->start = start;
    task->since = NAN;
    task->next = wall_of(p->pacing, start);
    return true;
}

/* When the inputs of the next iteration have landed; infinite where one has not come. */
static double landing_of(const TimedProcess *p, const TimedTask *task)
{
    double landing = -INFINITY;
    for (int64_t i = task->first_inlet; i < task->first_inlet + task->inlets; i++) {
        const Inlet *in = p->inlet + i;
        if (in->needed < 0)
            continue;
        double arrived = in->arrived[in->needed];
        if (isnan(arrived))
            return INFINITY;
        if (in->latency > 0.0) {
            double lands = run_time_of(p->pacing, arrived) + in->latency;
            landing = larger(landing, wall_of(p->pacing, lands));
        }
    }
    return landing;
}

/* Read the inputs. What reads the newest is kept: the next iteration may read it again. */
static void read_inputs(TimedProcess *p, const TimedTask *task)
{
    bool is_last = task->ended == task->iterations - 1;
    for (int64_t i = task->first_inlet; i < task->first_inlet + task->inlets; i++) {
        Inlet *in = p->inlet + i;
        if (in->needed < 0)
            continue;
        for (int64_t number = in->given_back; number <= in->needed; number++)
            take_payload(p, in, number);
        give_back(p, in, in->latest && !is_last ? in->needed : in->needed + 1);
    }
}

/* Report the end of an iteration, which may be yet to come. */
static void note_task_end(TimedProcess *p, const TimedTask *task, double began, double now)
{
    double due = end_on(&task->speeds, 0, task->start, task->time[task->ended]);
    int64_t sent = 0;
    for (int64_t i = task->first_outlet; i < task->first_outlet + task->outlets; i++)
        sent += task->ended < p->outlet[i].sent;

    uint8_t *note = next_note(p, TASK_NOTE_BYTES + SENT_BYTES * sent);
    int32_t head[6] = {TASK_NOTE, (int32_t)task->task, (int32_t)task->ended, (int32_t)sent};
    double times[5] = {task->start, larger(now, due), began, 0.0, larger(now - due, 0.0)};
    memcpy(note, head, sizeof head);
    memcpy(note + sizeof head, times, sizeof times);
    note += TASK_NOTE_BYTES;
    for (int64_t i = task->first_outlet; i < task->first_outlet + task->outlets; i++) {
        const Outlet *out = p->outlet + i;
        if (task->ended >= out->sent)
            continue;
        double volume = (double)out->size[task->ended + p->first] / p->pacing->byte_scale;
        memcpy(note, &out->edge, sizeof out->edge);
        memcpy(note + sizeof out->edge, &volume, sizeof volume);
        note += SENT_BYTES;
    }
}

/* Run the iteration that is ordered, whose inputs are there. */
static void run_iteration(TimedProcess *p, TimedTask *task)
{
    double wall = monotonic(), began = run_time_of(p->pacing, wall);
    read_inputs(p, task);
    note_task_end(p, task, began, run_time_of(p->pacing, monotonic()));

    int64_t iteration = task->ended++;
    task->ordered = false;
    task->since = NAN;
    task->next = INFINITY;
    for (int64_t i = task->first_outlet; i < task->first_outlet + task->outlets; i++)
        if (iteration < p->outlet[i].sent)
            send_payload(p, i, iteration, wall);
}

/* Look at a task that is due; true where it ran. */
static bool run_if_ready(TimedProcess *p, TimedTask *task, double now)
{
    double landing = landing_of(p, task);
    if (landing > now) {
        /* Who only waits for a latency to be over waits for no one. */
        if (isfinite(landing))
            task->since = NAN;
        else if (isnan(task->since))
            task->since = now;
        task->next = landing;
        return false;
    }
    int64_t size = TASK_NOTE_BYTES + SENT_BYTES * task->outlets;
    if (!has_room(p, size))
        return false;
    run_iteration(p, task);
    return true;
}

/* Run what is due: a payload that was handed over may make another task ready. */
static void run_tasks(TimedProcess *p)
{
    bool any = true;
    while (any) {
        any = false;
        double now = monotonic();
        for (int64_t i = 0; i < p->tasks; i++) {
            TimedTask *task = p->task + i;
            if (task->ordered && task->next <= now)
                any |= run_if_ready(p, task, now);
        }
    }
}

/* Set the alarms of tasks and of senders. */
static void set_alarms(TimedProcess *p)
{
    double due = INFINITY;
    for (int64_t i = 0; i < p->tasks; i++)
        if (p->task[i].ordered)
            due = smaller(due, p->task[i].next);
    if (due != p->due) {
        p->due = due;
        set_timer(p->timer, due);
    }
    set_alarm(p->pacing);
}

#ifdef __linux__
/* Return a descriptor by which others wait for all that is watched, -1: there is none. */
int32_t open_watch(void) { return epoll_create1(EPOLL_CLOEXEC); }

/* Watch for what comes over an edge. */
bool watch_inlet(TimedProcess *p, int64_t place)
{
    return watch(p, p->inlet[place].receiver->fd, COMES, place);
}

/* Watch the alarms of senders and of tasks. */
bool watch_alarms(TimedProcess *p)
{
    p->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    return p->timer >= 0 && watch(p, p->timer, STARTS, 0)
           && watch(p, p->pacing->alarm, RINGS, 0);
}

static bool has_expired(int32_t timer)
{
    uint64_t count;
    return read(timer, &count, sizeof count) == sizeof count;
}

static void take_event(TimedProcess *p, uint64_t data)
{
    int64_t place = (int64_t)(data & UINT32_MAX);
    switch (data >> 32) {
    case COMES:
        if (!receive_all(p, place))
            ask_python(p->odd_inlet, &p->odd_inlets, place);
        break;
    case GOES:
        go_on_writing(p, place);
        break;
    case RINGS:
        if (has_expired(p->pacing->alarm))
            ring_senders(p, monotonic());
        break;
    default:
        if (has_expired(p->timer))
            p->due = INFINITY;
    }
}

static void take_events(TimedProcess *p)
{
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(p->epoll, ready, EVENTS, 0);
    for (int i = 0; i < count; i++)
        take_event(p, ready[i].data.u64);
}
#else
int32_t open_watch(void) { return -1; }

bool watch_inlet(TimedProcess *p, int64_t place)
{
    (void)p, (void)place;
    return false;
}

bool watch_alarms(TimedProcess *p)
{
    (void)p;
    return false;
}

static void take_events(TimedProcess *p) { (void)p; }
#endif

/* Do all that there is to do now. */
void take_turn(TimedProcess *p)
{
    p->is_full = false;
    take_events(p);
    run_tasks(p);
    set_alarms(p);
}
