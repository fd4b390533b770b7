/* Ends of edges of timed tasks: what they send and receive, in a process that wakes once for
 * all of it. */
#define _GNU_SOURCE
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#endif
#include "clock.h"
#include "inline.h"
#include "timed_edges.h"
#include "wire.h"

/* Kinds of notes, and their bytes: emu/emulation/wire/notes.py. */
enum { FLOW_NOTE = 1, FLOW_NOTE_BYTES = 32 };
/* Bytes that a frame without rates sends per turn while others are paced. */
enum { BESIDE_PACING = 1 << 20 };

#ifdef __linux__
/* Watch a descriptor: for bytes that come, or where there is room for those that go. */
bool watch(TimedProcess *p, int32_t fd, int32_t kind, int64_t place)
{
    struct epoll_event event = {.events = kind == GOES ? EPOLLOUT : EPOLLIN};
    uint64_t kind_of_process = (uint64_t)p->number << KIND_BITS | (uint64_t)kind;
    event.data.u64 = kind_of_process << 32 | (uint64_t)place;
    return epoll_ctl(p->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

void stop_watching(TimedProcess *p, int32_t fd)
{
    epoll_ctl(p->epoll, EPOLL_CTL_DEL, fd, NULL);
}
#else
bool watch(TimedProcess *p, int32_t fd, int32_t kind, int64_t place)
{
    (void)p, (void)fd, (void)kind, (void)place;
    return false;
}

void stop_watching(TimedProcess *p, int32_t fd) { (void)p, (void)fd; }
#endif

/* Have Python look at an inlet or outlet, once. */
void ask_python(int64_t *list, int64_t *count, int64_t place)
{
    for (int64_t i = 0; i < *count; i++)
        if (list[i] == place)
            return;
    list[(*count)++] = place;
}

/* True where there is room for a note; else Python has to take the others first. */
bool has_room(TimedProcess *p, int64_t size)
{
    p->is_full |= p->notes_size + size > p->notes_room;
    return !p->is_full;
}

/* Return the room for a note. */
uint8_t *next_note(TimedProcess *p, int64_t size)
{
    uint8_t *note = p->notes + p->notes_size;
    p->notes_size += size;
    return note;
}

/* Report that a flow has ended; who receives has looked for the room. */
static void note_flow_end(TimedProcess *p, const Inlet *in, int64_t iteration, double wall,
                          int64_t volume)
{
    uint8_t *note = next_note(p, FLOW_NOTE_BYTES);
    int32_t head[4] = {FLOW_NOTE, (int32_t)in->edge, (int32_t)iteration, 0};
    double times[2] = {run_time_of(p->pacing, wall), (double)volume / p->pacing->byte_scale};
    memcpy(note, head, sizeof head);
    memcpy(note + sizeof head, times, sizeof times);
}

/* Have a payload wait for its task, unless that waits for it. */
void deliver_payload(TimedProcess *p, Inlet *in, int64_t iteration, double wall,
                     int64_t volume, bool shaped)
{
    TimedTask *task = p->task + in->task;
    p->stirred = true;
    in->arrived[iteration] = wall;
    in->volume[iteration] = volume;
    in->newest = iteration;
    if (shaped)
        note_flow_end(p, in, iteration, wall, volume);

    bool is_awaited = !isnan(task->since) && in->needed == iteration;
    if (is_awaited) {
        task->next = -INFINITY;
        return;
    }
    in->waits[iteration] = true;
    p->waiting++;
    p->waiting_bytes += volume;
    p->most_waiting = at_least(p->most_waiting, p->waiting);
    p->most_waiting_bytes = at_least(p->most_waiting_bytes, p->waiting_bytes);
}

/* Hand a payload that has come to its task. */
void take_payload(TimedProcess *p, Inlet *in, int64_t iteration)
{
    if (!in->waits[iteration])
        return;
    in->waits[iteration] = false;
    p->waiting--;
    p->waiting_bytes -= in->volume[iteration];
}

/* Give back the memory of payloads before `end`. Within a process they have none. */
void give_back(TimedProcess *p, Inlet *in, int64_t end)
{
    for (; in->given_back < end; in->given_back++) {
        int64_t volume = in->volume[in->given_back];
        if (in->receiver != NULL && volume > 0)
            take_back(p->memory, volume);
    }
}

/* True where a frame that has come whole is as plain as a timed task sends it; Python has the
 * words for any other. */
static bool is_plain(const Inlet *in, const Receiver *r)
{
    return r->checksum == r->stated && r->passes && has_bytes_alone(r) && r->edge == in->edge
           && r->iteration > in->newest && r->iteration < in->sent && r->expected->fault < 0;
}

/* Note for how long bytes of a frame that is whole now waited to be read, if they did. */
static void note_waits(TimedProcess *p, const Receiver *r)
{
    Arrivals *a = r->arrivals;
    double unread = larger(a->unread - a->delay, 0.0);
    if (a->hole != 0.0 || unread != 0.0) {
        uint32_t edge = (uint32_t)r->edge, iteration = (uint32_t)r->iteration;
        p->wait[p->wait_count++ % p->wait_room] =
            (WaitRow){edge, iteration, a->hole, unread};
    }
    a->hole = a->unread = a->delay = 0.0;
}

static void take_frame_of(TimedProcess *p, Inlet *in)
{
    Receiver *r = in->receiver;
    r->passes = false; /* its memory is free when the task has it */
    in->frames++;
    in->payload_bytes += r->length;
    in->header_bytes += PREFIX_BYTES + r->header;
    add_frame(p->arrivals, r->edge, r->iteration, r->first, r->wall, r->length);
    note_waits(p, r);
    deliver_payload(p, in, r->iteration, r->wall, r->length, r->shaped);
}

/* Receive what has come over an edge; false where Python is to go on. */
bool receive_all(TimedProcess *p, int64_t place)
{
    Inlet *in = p->inlet + place;
    Receiver *r = in->receiver;
    if (r == NULL)
        return false;
    for (;;) {
        if (!has_room(p, FLOW_NOTE_BYTES))
            return true;
        int32_t outcome = receive(r);
        if (outcome == WAITS)
            return true;
        if (outcome != ARRIVED || !is_plain(in, r)) {
            r->held = outcome;
            return false;
        }
        take_frame_of(p, in);
    }
}

/* Note what the kernel counts of a connection before a flow. */
static void note_connection(TimedProcess *p, const Outlet *out)
{
    uint8_t *row = p->state + STATE_BYTES * (p->state_count % p->state_room);
    uint32_t edge = (uint32_t)out->edge, iteration = (uint32_t)out->front;
    if (read_state(out->sender->fd, edge, iteration, row))
        p->state_count++;
}

/* Give the frame in front to its sender. */
static void load(TimedProcess *p, Outlet *out)
{
    int64_t iteration = out->front, number = iteration + p->first;
    int64_t size = out->size[number];
    int64_t start = window_start(p->seed, out->edge, number, p->period);
    const uint8_t *body = p->pool + start;
    out->paced = out->shaped && size > 0;

    int64_t head = write_head(out->head, out->edge, iteration, out->paced, body, size);
    out->buffers[0] = (Buffer){(const char *)out->head, head};
    out->buffers[1] = (Buffer){(const char *)body, size};
    int64_t count = size > 0 ? 2 : 1;
    load_frame(out->sender, iteration, out->buffers, count, out->since[iteration], -INFINITY);
    out->loaded = true;
}

/* Send a burst without pacing; the kernel says when there is room for the next. */
static int32_t pump(const TimedProcess *p, Sender *sender)
{
    int64_t burst = p->pacing->count > 0 ? BESIDE_PACING : BURST;
    int32_t outcome = send_bytes(sender, burst);
    return outcome == PACED ? BLOCKED : outcome;
}

/* Begin with the frame in front; return what that came to. */
static int32_t begin(TimedProcess *p, Outlet *out)
{
    load(p, out);
    if (!out->paced)
        return pump(p, out->sender);
    note_connection(p, out);
    Pacing *pacing = p->pacing;
    pacing->active[pacing->count++] = out->sender;
    return pacing->started ? look(pacing, out->sender, monotonic()) : PACED;
}

static void stop_writing(TimedProcess *p, Outlet *out)
{
    if (out->writing)
        stop_watching(p, out->sender->fd);
    out->writing = false;
}

static void end_frame(TimedProcess *p, Outlet *out)
{
    finish(p->pacing, out->sender, out->paced);
    stop_writing(p, out);
    if (out->paced)
        drop(p->pacing, out->sender);
    out->loaded = false;
    out->front++;
}

/* Do what a look of a sender came to, and begin with what is behind it. */
static void attend(TimedProcess *p, int64_t place, int32_t outcome)
{
    Outlet *out = p->outlet + place;
    while (outcome == SENT) {
        end_frame(p, out);
        if (out->front == out->queued)
            return;
        outcome = begin(p, out);
    }
    if (outcome == BLOCKED && !out->writing)
        out->writing = watch(p, out->sender->fd, GOES, place);
    if (outcome == BROKEN || (outcome == BLOCKED && !out->writing)) {
        out->broken = true;
        ask_python(p->odd_outlet, &p->odd_outlets, place);
    }
}

/* Write on: the kernel's buffer has room again. */
void go_on_writing(TimedProcess *p, int64_t place)
{
    Outlet *out = p->outlet + place;
    if (!out->writing || !out->loaded)
        return;
    if (!out->paced) {
        attend(p, place, pump(p, out->sender));
        return;
    }
    /* The rates may have changed meanwhile. */
    stop_writing(p, out);
    attend(p, place, look(p->pacing, out->sender, monotonic()));
}

/* Hand a payload over within the process. */
static void hand_over(TimedProcess *p, const Outlet *out, int64_t iteration, double now)
{
    int64_t size = out->size[iteration + p->first];
    add_frame(p->pacing->departures, out->edge, iteration, now, now, size);
    add_frame(p->arrivals, out->edge, iteration, now, now, size);
    deliver_payload(p, p->inlet + out->inlet, iteration, now, size, false);
}

/* Queue the payload of an iteration. */
void send_payload(TimedProcess *p, int64_t place, int64_t iteration, double now)
{
    Outlet *out = p->outlet + place;
    out->since[iteration] = now;
    out->queued = iteration + 1;
    if (out->sender == NULL) {
        hand_over(p, out, iteration, now);
        return;
    }
    if (out->broken)
        ask_python(p->odd_outlet, &p->odd_outlets, place);
    else if (!out->loaded)
        attend(p, place, begin(p, out));
}

/* Look at the board: there is, or soon will be, a segment of an edge from a run time on. */
void wake_outlet(TimedProcess *p, int64_t edge, double since)
{
    int64_t place = p->outlet_of[edge];
    if (place < 0)
        return;
    Outlet *out = p->outlet + place;
    if (!out->loaded || !out->paced || out->broken)
        return;
    p->stirred = true;
    Sender *sender = out->sender;
    sender->notified = p->pacing->started ? wall_of(p->pacing, since) : -INFINITY;
    sender->due = smaller(sender->due, sender->notified);
    if (!out->writing && p->pacing->started)
        attend(p, place, look(p->pacing, sender, monotonic()));
}

/* Do what is due as the pacer's alarm rings. */
void ring_senders(TimedProcess *p, double now)
{
    Pacing *pacing = p->pacing;
    int64_t count = ring(pacing, now);
    for (int64_t i = 0; i < count; i++) {
        int64_t place = p->outlet_of[pacing->attention[i]];
        attend(p, place, p->outlet[place].sender->outcome);
    }
    pacing->lag = 0.0;
}

/* Watch for what comes over an edge. */
bool watch_inlet(TimedProcess *p, int64_t place)
{
    Inlet *in = p->inlet + place;
    in->watched = watch(p, in->receiver->fd, COMES, place);
    return in->watched;
}

/* Receive nothing more over an edge: Python goes on. */
void leave_inlet(TimedProcess *p, int64_t place)
{
    Inlet *in = p->inlet + place;
    if (in->watched)
        stop_watching(p, in->receiver->fd);
    in->watched = false;
}

/* Watch nothing more: the process has done all, or fails. */
void leave_all(TimedProcess *p)
{
    for (int64_t place = 0; place < p->inlets; place++)
        leave_inlet(p, place);
    for (int64_t place = 0; place < p->outlets; place++)
        stop_writing(p, p->outlet + place);
}

/* Send nothing more over an edge; return true where something is left. */
bool cut_outlet(TimedProcess *p, int64_t place)
{
    Outlet *out = p->outlet + place;
    stop_writing(p, out);
    if (out->loaded && out->paced)
        drop(p->pacing, out->sender);
    out->loaded = false;
    out->broken = true;
    return out->front < out->queued;
}
