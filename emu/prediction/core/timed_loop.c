/* What wakes the timed processes of a process of the system: one call waits for all of them, and
 * returns where Python has something to do. */
#define _GNU_SOURCE
#include <errno.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/epoll.h>
#include <sys/timerfd.h>
#endif
#include "clock.h"
#include "inline.h"
#include "timed_edges.h"

/* Events that one call may bring, and microseconds until there may be room for ends again. */
enum { EVENTS = 64, UNTIL_ROOM = 1000 };
/* Kinds of orders, and their bytes: emu/emulation/wire/notes.py. */
enum { RUN_NOTE = 3, WAKE_NOTE = 4, RUN_BYTES = 24, READ_BYTES = 8, WAKE_BYTES = 16 };

/* Return a process of the loop by an entry of `task_owner` or `edge_owner`, NULL: it has not
 * begun, or is none of timed tasks. */
static TimedProcess *owner_of(const TimedLoop *loop, const int64_t *owner, int64_t count,
                              int64_t place)
{
    if (place < 0 || place >= count || owner[place] < 0)
        return NULL;
    return loop->member[owner[place]];
}

/* Begin an iteration; false where Python is to have a look at the order. */
static bool run_task(TimedLoop *loop, const uint8_t *note, int64_t size)
{
    int32_t head[4]; /* kind, task, iteration, reads */
    double start;
    if (size < RUN_BYTES)
        return false;
    memcpy(head, note, sizeof head);
    memcpy(&start, note + sizeof head, sizeof start);
    int64_t task = head[1], reads = head[3];
    TimedProcess *p = owner_of(loop, loop->task_owner, loop->tasks, task);
    if (p == NULL || size != RUN_BYTES + READ_BYTES * reads)
        return false;
    const int32_t *pairs = (const int32_t *)(const void *)(note + RUN_BYTES);
    return order_task(p, loop->task_place[task], head[2], start, pairs, reads);
}

/* Have a sender look at its rates; false as `run_task`. */
static bool wake_sender(TimedLoop *loop, const uint8_t *note, int64_t size)
{
    int32_t head[2]; /* kind, edge */
    double since;
    if (size != WAKE_BYTES)
        return false;
    memcpy(head, note, sizeof head);
    memcpy(&since, note + sizeof head, sizeof since);
    TimedProcess *p = owner_of(loop, loop->edge_owner, loop->edges, head[1]);
    if (p == NULL || head[0] != WAKE_NOTE)
        return false;
    wake_outlet(p, head[1], since);
    return true;
}

/* Return the bytes of the first of some orders; all of them where it is none. */
static int64_t size_of_order(const uint8_t *note, int64_t rest)
{
    int32_t head[4] = {0};
    memcpy(head, note, (size_t)at_most(rest, sizeof head));
    int64_t size = rest;
    if (head[0] == WAKE_NOTE)
        size = WAKE_BYTES;
    else if (head[0] == RUN_NOTE && head[3] >= 0)
        size = RUN_BYTES + READ_BYTES * (int64_t)head[3];
    return at_most(size, rest);
}

/* Carry out some orders, and leave to Python what the core has no words for. */
static void obey(TimedLoop *loop, int64_t size)
{
    const uint8_t *note = loop->order, *end = note + size;
    while (note < end) {
        int64_t bytes = size_of_order(note, end - note);
        int32_t kind = 0;
        memcpy(&kind, note, (size_t)at_most(bytes, sizeof kind));
        bool is_done = kind == RUN_NOTE ? run_task(loop, note, bytes)
                                        : wake_sender(loop, note, bytes);
        if (!is_done) {
            memcpy(loop->left + loop->left_size, note, (size_t)bytes);
            loop->left_size += bytes;
        }
        note += bytes;
    }
}

/* Take the orders that have come, but while Python has others to look at. */
static void take_orders(TimedLoop *loop)
{
    while (loop->has_orders && loop->left_size == 0) {
        int64_t size = read_ring(loop->orders, loop->order);
        loop->is_broken |= size == RING_BROKEN;
        loop->has_orders = size > 0;
        if (size > 0)
            obey(loop, size);
    }
}

/* Report the ends of a process by the ring, if they have room there. */
static void report(TimedLoop *loop, TimedProcess *p)
{
    if (p->notes_size == 0 || loop->ends == NULL)
        return;
    int32_t outcome = write_ring(loop->ends, p->notes, p->notes_size);
    loop->is_broken |= outcome == RING_BROKEN;
    loop->is_stalled |= outcome == RING_FULL;
    if (outcome == RING_PASSED)
        p->notes_size = 0;
}

/* True where a process has something that Python is to take. */
static bool asks_python(const TimedLoop *loop, const TimedProcess *p)
{
    bool has_notes = p->notes_size > 0 && loop->ends == NULL;
    return has_notes || p->odd_inlets > 0 || p->odd_outlets > 0;
}

/* Give a turn to whom something has come, or is due. */
static void give_turns(TimedLoop *loop)
{
    take_orders(loop);
    loop->is_stalled = false;
    loop->is_asked = loop->left_size > 0;
    double now = monotonic(), due = INFINITY;
    for (int64_t i = 0; i < loop->members; i++) {
        TimedProcess *p = loop->member[i];
        if (p == NULL)
            continue;
        if (p->stirred || p->is_full || p->due <= now)
            take_turn(p);
        report(loop, p);
        loop->is_asked |= asks_python(loop, p);
        due = smaller(due, p->due);
    }
    loop->is_asked |= loop->is_broken;
    if (due != loop->due) {
        loop->due = due;
        set_timer(loop->timer, due);
    }
}

#ifdef __linux__
/* Open what waits, for what Python's own epoll has as well; false where there are no
 * descriptors for it. */
bool open_loop(TimedLoop *loop, int32_t python)
{
    loop->due = INFINITY;
    loop->epoll = epoll_create1(EPOLL_CLOEXEC);
    loop->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (loop->epoll < 0 || loop->timer < 0)
        return false;

    /* By its edges the timer need not be read. */
    struct epoll_event rings = {.events = EPOLLIN | EPOLLET};
    rings.data.u64 = (uint64_t)RINGS << 32;
    struct epoll_event calls = {.events = EPOLLIN};
    calls.data.u64 = (uint64_t)CALLS << 32;
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->timer, &rings) == 0
           && epoll_ctl(loop->epoll, EPOLL_CTL_ADD, python, &calls) == 0;
}

/* Watch for what wakes this process when orders are there, or room for ends. */
bool watch_orders(TimedLoop *loop)
{
    struct epoll_event orders = {.events = EPOLLIN};
    orders.data.u64 = (uint64_t)ORDERS << 32;
    loop->has_orders = true;
    return epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->woken, &orders) == 0;
}

/* Take note that this process was woken. */
static void wake_up(TimedLoop *loop)
{
    char bytes[EVENTS];
    ssize_t count = read(loop->woken, bytes, sizeof bytes);
    (void)count;
    loop->has_orders = true;
}

/* Receive or send over an edge of a process. */
static void serve(TimedLoop *loop, int64_t number, int32_t kind, int64_t place)
{
    TimedProcess *p = loop->member[number];
    if (p == NULL) /* it ended in this very turn */
        return;
    p->stirred = true;
    if (kind == GOES)
        go_on_writing(p, place);
    else if (!receive_all(p, place))
        ask_python(p->odd_inlet, &p->odd_inlets, place);
}

static void take_event(TimedLoop *loop, uint64_t data)
{
    int64_t place = (int64_t)(data & UINT32_MAX);
    int64_t number = (int64_t)(data >> 32 >> KIND_BITS);
    int32_t kind = (int32_t)(data >> 32 & ((1 << KIND_BITS) - 1));
    if (kind == CALLS)
        loop->is_called = true;
    else if (kind == RINGS)
        loop->due = INFINITY; /* the alarm is spent */
    else if (kind == ORDERS)
        wake_up(loop);
    else
        serve(loop, number, kind, place);
}

/* Return milliseconds until a wall time, as epoll_wait takes them: never sooner. */
static int milliseconds_until(double wall)
{
    if (isinf(wall))
        return -1;
    double left = ceil(1e3 * (wall - monotonic()));
    return (int)smaller(larger(left, 0.0), INT32_MAX);
}

/* Wait until something comes, or until a wall time; false where that has come first. */
static bool take_events(TimedLoop *loop, double wall)
{
    if (loop->is_stalled) /* nothing is received meanwhile, which would wake at once */
        usleep(UNTIL_ROOM);
    struct epoll_event ready[EVENTS];
    int count = epoll_wait(loop->epoll, ready, EVENTS, milliseconds_until(wall));
    if (count < 0)
        loop->is_called = true; /* by a signal */
    for (int i = 0; i < count; i++)
        take_event(loop, ready[i].data.u64);
    return count != 0;
}
#else
bool open_loop(TimedLoop *loop, int32_t python)
{
    (void)loop, (void)python;
    return false;
}

bool watch_orders(TimedLoop *loop)
{
    (void)loop;
    return false;
}

static bool take_events(TimedLoop *loop, double wall)
{
    (void)loop, (void)wall;
    return false;
}
#endif

/* Do all that there is to do for timed processes until Python has something to do as well, or
 * that wall time has come. */
void turn_until(TimedLoop *loop, double wall)
{
    loop->is_called = false;
    give_turns(loop);
    bool is_over = loop->is_asked;
    while (!is_over && take_events(loop, wall)) {
        give_turns(loop);
        is_over = loop->is_asked || loop->is_called || monotonic() >= wall;
    }
}
