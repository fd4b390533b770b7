/* The coordinator's desk: ends that processes report, rates and orders that follow.
 *
 * An event takes some 0.3 us here; as objects of Python, noted one by one, it took 60. What
 * comes in is anybody's: nothing is read or written beyond what was checked. */
#include "inline.h"

enum { FLOW_NOTE = 1, TASK_NOTE, RUN_NOTE, WAKE_NOTE };

/* Notes as `emu.emulation.wire.notes` lays them out, little-endian. */
typedef struct { int32_t kind, edge, iteration, unused; double time, volume; } FlowNote;
typedef struct {
    int32_t kind, task, iteration, edges, report, unused;
    double start, end, began, cpu, late;
} TaskNote;
typedef struct { int64_t edge; double volume; } SentNote;
typedef struct { int32_t kind, task, iteration, reads; double start; } RunNote;
typedef struct { int32_t edge, iteration; } ReadNote;
typedef struct { int32_t kind, edge; double since; } WakeNote;

/* Keep an end, behind those of its time that came before it. */
static void keep_end(Desk *desk, double time, int64_t task, int64_t edge, int64_t iteration,
                     double volume)
{
    int64_t place = desk->waiting++;
    for (; place > 0 && desk->time[place - 1] > time; place--) {
        desk->time[place] = desk->time[place - 1];
        desk->task[place] = desk->task[place - 1];
        desk->edge[place] = desk->edge[place - 1];
        desk->iteration[place] = desk->iteration[place - 1];
        desk->volume[place] = desk->volume[place - 1];
    }
    desk->time[place] = time;
    desk->task[place] = task;
    desk->edge[place] = edge;
    desk->iteration[place] = iteration;
    desk->volume[place] = volume;
}

/* Why an end of a task or an edge can be none, TAKEN if it may. */
static int64_t judge(const Desk *desk, int64_t lead, int64_t task, int64_t iteration,
                     double time)
{
    if (task < 0 || task >= desk->tasks || desk->lead[task] != lead)
        return FOREIGN;
    if (!isfinite(time))
        return TIMELESS;
    if (iteration < 0 || iteration >= desk->iterations)
        return UNKNOWN_ITERATION;
    return desk->waiting < desk->room ? TAKEN : TOO_MANY;
}

static int64_t take_flow(Desk *desk, int64_t lead, const FlowNote *note)
{
    int64_t edge = note->edge;
    int64_t task = edge >= 0 && edge < desk->edges ? desk->destination[edge] : -1;
    int64_t fault = judge(desk, lead, task, note->iteration, note->time);
    if (fault == TAKEN)
        keep_end(desk, note->time, -1, edge, note->iteration, note->volume);
    return fault;
}

/* All is looked at before any is noted: an end counts whole or not at all. */
static int64_t take_task(Desk *desk, int64_t lead, const TaskNote *note, const char *sent)
{
    int64_t task = note->task, iteration = note->iteration;
    int64_t fault = judge(desk, lead, task, iteration, note->end);
    if (fault != TAKEN)
        return fault;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < note->edges; i++) {
            SentNote flow;
            memcpy(&flow, sent + i * (int64_t)sizeof flow, sizeof flow);
            if (flow.edge < 0 || flow.edge >= desk->edges || desk->source[flow.edge] != task)
                return FOREIGN_EDGE;
            if (!isfinite(flow.volume) || flow.volume < 0)
                return NO_VOLUME;
            if (pass == 1)
                desk->volumes[flow.edge * desk->iterations + iteration] = flow.volume;
        }
    int64_t cell = task * desk->iterations + iteration;
    desk->began[cell] = note->began;
    desk->late[cell] = note->late;
    desk->cpu[cell] = note->cpu;
    desk->known[task] = iteration;
    desk->known_end[task] = note->end;
    keep_end(desk, note->end, task, -1, iteration, 0.0);
    return TAKEN;
}

/* Take the ends of a message by whom `lead` speaks for, read by `now`; return TAKEN, or
 * what is wrong with the note at desk->place. Reports are left to the caller. */
int64_t take_ends(Desk *desk, int64_t lead, const char *notes, int64_t size, double now)
{
    desk->reports = 0;
    for (int64_t place = 0; place < size;) {
        int64_t rest = size - place, length = sizeof(FlowNote), fault = CUT_SHORT;
        int32_t kind = 0;
        double time = INFINITY;
        desk->place = place;
        if (rest < length)
            return CUT_SHORT;
        memcpy(&kind, notes + place, sizeof kind);
        if (kind == FLOW_NOTE) {
            FlowNote note;
            memcpy(&note, notes + place, sizeof note);
            time = note.time;
            fault = take_flow(desk, lead, &note);
        } else if (kind == TASK_NOTE) {
            TaskNote note;
            if (rest < (int64_t)sizeof note)
                return CUT_SHORT;
            memcpy(&note, notes + place, sizeof note);
            int64_t sent = note.edges * (int64_t)sizeof(SentNote);
            length = (int64_t)sizeof note + sent + note.report;
            if (note.edges < 0 || note.report < 0 || rest < length)
                return CUT_SHORT;
            time = note.end;
            fault = take_task(desk, lead, &note, notes + place + sizeof note);
            if (fault == TAKEN && note.report > 0 && desk->reports < desk->tasks)
                desk->report_place[desk->reports++] = place;
        } else {
            return NO_END;
        }
        if (fault != TAKEN)
            return fault;
        if (time <= now)
            desk->last_past = larger(desk->last_past, time);
        place += length;
    }
    return TAKEN;
}

/* The earliest run time at which a task may end of whose end nothing is known. */
static double first_unknown(const Desk *desk, const State *state)
{
    double first = INFINITY;
    for (int64_t task = 0; task < desk->tasks; task++) {
        int64_t iteration = state->started[task] - 1;
        if (desk->lead[task] < 0 || state->ended[task] > iteration
            || desk->known[task] == iteration)
            continue;
        if (desk->holds == NULL)
            return -INFINITY;
        int64_t cell = task * desk->iterations + iteration;
        first = smaller(first, desk->task_start[cell] + desk->holds[cell]);
    }
    return first;
}

/* Count the ends that are due by `until`, or before `ahead` as far as that can be settled;
 * return how far that is. */
double find_due(Desk *desk, const State *state, double until, double ahead)
{
    ahead = smaller(ahead, first_unknown(desk, state));
    double latest = larger(until, ahead);
    desk->due.count = 0;
    while (desk->due.count < desk->waiting && desk->time[desk->due.count] <= latest)
        desk->due.count++;
    desk->noted = 0;
    desk->ended = 0;
    return ahead;
}

static void note_ended(Desk *desk, int64_t task, int64_t edge, int64_t iteration, double time,
                       double volume)
{
    if (desk->ended == desk->room + desk->edges)
        return;
    int64_t row = desk->ended++;
    desk->ended_task[row] = task;
    desk->ended_edge[row] = edge;
    desk->ended_iteration[row] = iteration;
    desk->ended_time[row] = time;
    desk->ended_volume[row] = volume;
}

/* A flow ends when both its fluid and its last byte have: which of the two is noted first
 * depends on the host, so each waits for the other. */
static void end_flow(Desk *desk, int64_t edge, int64_t iteration)
{
    double end = larger(desk->arrived[edge], desk->fluid_end[edge]);
    desk->flow_end[edge * desk->iterations + iteration] = end;
    note_ended(desk, -1, edge, iteration, end,
               desk->volumes[edge * desk->iterations + iteration]);
    desk->arrived[edge] = NAN;
    desk->fluid_end[edge] = NAN;
}

/* True where as many bytes came as were announced, but for roundings. */
static bool is_whole(double volume, double announced)
{
    return fabs(volume - announced) <= 1e-9 * larger(fabs(volume), fabs(announced));
}

static bool note_end(Desk *desk, int64_t place)
{
    int64_t task = desk->task[place], edge = desk->edge[place];
    int64_t iteration = desk->iteration[place];
    double time = desk->time[place];
    if (task >= 0) {
        desk->task_end[task * desk->iterations + iteration] = time;
        note_ended(desk, task, -1, iteration, time, 0.0);
        return true;
    }
    int64_t cell = edge * desk->iterations + iteration;
    if (!is_whole(desk->volume[place], desk->volumes[cell]))
        return false;
    desk->arrivals[cell] = time;
    desk->arrived[edge] = time;
    if (!isnan(desk->fluid_end[edge]))
        end_flow(desk, edge, iteration);
    return true;
}

/* Note what starts, ends and gets a rate at an instant; of an edge the newest rate is news. */
static void note_instant(Desk *desk, const Instants *found, const Gates *gates, int64_t k)
{
    int64_t columns = desk->iterations;
    double now = found->time[k];
    for (int64_t i = found->tasks[k]; i < found->tasks[k + 1]; i++)
        desk->task_start[found->task[i] * columns + found->task_iteration[i]] = now;
    for (int64_t i = found->flows[k]; i < found->flows[k + 1]; i++)
        desk->activated[found->flow[i] * columns + found->flow_iteration[i]] = now;
    for (int64_t i = found->gates[k]; i < found->gates[k + 1]; i++) {
        int64_t cell = gates->task[i] * columns + gates->iteration[i];
        desk->task_start[cell] = gates->start[i];
        desk->began[cell] = gates->start[i];
        desk->task_end[cell] = now;
    }
    int64_t line = found->lines[k], news = line + found->served[k];
    for (; line < news; line++) {
        int64_t edge = found->edge[line];
        desk->fluid_end[edge] = now;
        if (!isnan(desk->arrived[edge]))
            end_flow(desk, edge, found->iteration[line]);
    }
    for (; line < found->lines[k + 1]; line++) {
        int64_t edge = found->edge[line];
        if (desk->row[edge] < 0) {
            desk->row[edge] = desk->news.count++;
            desk->news_edge[desk->row[edge]] = edge;
            desk->news_number[desk->row[edge]] = ++desk->published[edge];
        }
        int64_t row = desk->row[edge];
        desk->news_iteration[row] = found->iteration[line];
        desk->news_served[row] = found->amount[line];
        desk->news_rate[row] = found->rate[line];
        desk->news_since[row] = now;
    }
}

/* Note what a call of `pass_instants` has found. Return false: of a flow other bytes arrived
 * than were announced, that of the end at desk->place. */
bool note_instants(Desk *desk, const Instants *found, const Gates *gates,
                   const Passage *passage)
{
    for (; desk->noted < passage->taken; desk->noted++) {
        desk->place = desk->noted;
        if (!note_end(desk, desk->noted))
            return false;
    }
    for (int64_t i = 0; i < desk->news.count; i++)
        desk->row[desk->news_edge[i]] = -1;
    desk->news.count = 0;
    for (int64_t k = 0; k < passage->count; k++)
        note_instant(desk, found, gates, k);
    return true;
}

/* Let go of the first ends, which were taken in. */
void drop_ends(Desk *desk, int64_t taken)
{
    size_t rest = (size_t)(desk->waiting - taken);
    memmove(desk->time, desk->time + taken, rest * sizeof *desk->time);
    memmove(desk->task, desk->task + taken, rest * sizeof *desk->task);
    memmove(desk->edge, desk->edge + taken, rest * sizeof *desk->edge);
    memmove(desk->iteration, desk->iteration + taken, rest * sizeof *desk->iteration);
    memmove(desk->volume, desk->volume + taken, rest * sizeof *desk->volume);
    desk->waiting -= taken;
}

/* Append a note for whoever speaks for a task. */
static void write_note(Desk *desk, int64_t task, const void *note, size_t size)
{
    int64_t *place = desk->order_start + desk->lead[task] + 1;
    memcpy(desk->orders + *place, note, size);
    *place += (int64_t)size;
}

static void write_run(Desk *desk, const State *state, int64_t task, int64_t iteration,
                      double start)
{
    int64_t first = desk->read_start[task], reads = desk->read_start[task + 1] - first;
    RunNote run = {RUN_NOTE, (int32_t)task, (int32_t)iteration, (int32_t)reads, start};
    write_note(desk, task, &run, sizeof run);
    for (int64_t i = first; i < first + reads; i++) {
        int64_t edge = desk->read_edge[i];
        int64_t newest = state->log.reads[edge * desk->iterations + iteration];
        ReadNote read = {(int32_t)edge, (int32_t)newest};
        write_note(desk, task, &read, sizeof read);
    }
}

static int64_t bytes_of_run(const Desk *desk, int64_t task)
{
    int64_t reads = desk->read_start[task + 1] - desk->read_start[task];
    return (int64_t)(sizeof(RunNote) + (size_t)reads * sizeof(ReadNote));
}

/* Count the bytes of an order to a task, or to the source of a flow. */
static void count_order(Desk *desk, int64_t task, int64_t size)
{
    int64_t lead = desk->lead[task];
    if (desk->order_start[lead + 2] == 0)
        desk->addressed[desk->addressees++] = lead;
    desk->order_start[lead + 2] += size;
}

/* Write the orders that follow from news and instants: whom to wake, then what to run. Those
 * of lead i are desk->orders from order_start[i] to order_start[i + 1]; who gets any is in
 * desk->addressed, in the order of these. Return false: there is no room for them. */
bool write_orders(Desk *desk, const State *state, const Instants *found, int64_t count)
{
    int64_t woken = find_rises(&desk->news, desk->told, desk->told_rate, desk->rises);
    int64_t *start = desk->order_start;
    desk->addressees = 0;
    for (int64_t lead = 0; lead < desk->leads + 2; lead++)
        start[lead] = 0;
    for (int64_t i = 0; i < woken; i++)
        count_order(desk, desk->source[desk->news_edge[desk->rises[i]]], sizeof(WakeNote));
    for (int64_t i = 0; i < found->tasks[count]; i++)
        count_order(desk, found->task[i], bytes_of_run(desk, found->task[i]));
    /* Two places ahead: as they are written each start moves to the next one's. */
    for (int64_t lead = 0; lead < desk->leads; lead++)
        start[lead + 2] += start[lead + 1];
    if (start[desk->leads + 1] > desk->order_room)
        return false;

    for (int64_t i = 0; i < woken; i++) {
        int64_t row = desk->rises[i], edge = desk->news_edge[row];
        WakeNote wake = {WAKE_NOTE, (int32_t)edge, desk->news_since[row]};
        write_note(desk, desk->source[edge], &wake, sizeof wake);
    }
    for (int64_t k = 0; k < count; k++)
        for (int64_t i = found->tasks[k]; i < found->tasks[k + 1]; i++)
            write_run(desk, state, found->task[i], found->task_iteration[i], found->time[k]);
    return true;
}
