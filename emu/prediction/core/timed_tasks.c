/* Timed tasks of a process: an iteration begins at its time with its inputs there, ends when
 * its time is over, and sends what it has to. Nothing computes, and nothing calls Python. */
#define _GNU_SOURCE
#include "clock.h"
#include "inline.h"
#include "timed_edges.h"

#include "machine_speeds.c"

/* The kind of the note of an end, its bytes, and those of each flow that follows. */
enum { TASK_NOTE = 2, TASK_NOTE_BYTES = 64, SENT_BYTES = 16 };

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
                const int32_t *reads, int64_t count)
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
    p->stirred = true;
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

/* Return when something is to begin, or to be sent. */
static double next_due(const TimedProcess *p)
{
    double due = p->pacing->due;
    for (int64_t i = 0; i < p->tasks; i++)
        if (p->task[i].ordered)
            due = smaller(due, p->task[i].next);
    return due;
}

/* Do all that a process has to do now, of which nothing comes from sockets. */
void take_turn(TimedProcess *p)
{
    Pacing *pacing = p->pacing;
    p->stirred = false;
    p->is_full = false;
    double now = monotonic();
    if (pacing->due <= now)
        ring_senders(p, now);
    run_tasks(p);
    pacing->due = soonest(pacing);
    p->due = next_due(p);
}
